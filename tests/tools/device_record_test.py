"""tools/device_record.py: a changed kernel source is found, a changed comment is none, a record cannot be forged or partial."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

TOOL = pathlib.Path(sys.argv.pop(1)) / "tools/device_record.py"
sys.path.insert(0, str(TOOL.parent))
sys.dont_write_bytecode = True
import device_record  # noqa: E402

KERNEL = '#include "sm90/a/part.cuh"\n#include <cuda_runtime.h>\n__global__ void k() { part(1\'000); }\n'
FILES = {
    "src/sm90/a/kernel.cu": KERNEL,
    "src/sm90/a/part.cuh": '#include "flashmask/rule.hpp"\n// why\nvoid part(int);\n',
    "src/sm90/a/host_only.hpp": "int host();\n",
    "src/sm90/CMakeLists.txt": "flashmask_room(sm90) # note\n",
    "include/flashmask/rule.hpp": "inline int rule() { return 1; }\n",
    "tests/device/a_test.cu": "int main() {}\n",
}


class DeviceRecord(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name).resolve()
        for name, text in FILES.items():
            self.write(name, text)
        sources = device_record.hashes(self.root)
        self.record = {**device_record.FORMAT, "kernel_hash": device_record.total_hash(sources), "gpu": {}, "sources": sources,
                       "tests": [{"program": "device_a_test", "name": "A.b", "outcome": "passed"}], "benchmarks": []}
        self.save()

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def save(self):
        self.write("tests/device/record.json", json.dumps(self.record))

    def check(self):
        done = subprocess.run([sys.executable, TOOL, "--check", "--root", self.root], capture_output=True, text=True)
        return done.returncode, done.stdout

    def test_the_hash_covers_what_kernels_include_and_nothing_else(self):
        self.assertEqual(device_record.kernel_sources(self.root),
                         ["include/flashmask/rule.hpp", "src/sm90/CMakeLists.txt", "src/sm90/a/kernel.cu", "src/sm90/a/part.cuh"])
        self.assertEqual(self.check()[0], 0)

    def test_a_changed_source_fails_and_is_named(self):
        for name in ("include/flashmask/rule.hpp", "src/sm90/a/part.cuh", "src/sm90/a/kernel.cu"):
            self.write(name, FILES[name].replace("1", "2").replace("int);", "long);"))
            code, text = self.check()
            self.assertEqual(code, 1)
            self.assertIn(name + " has changed", text)
            self.write(name, FILES[name])

    def test_comments_and_white_space_do_not_count(self):
        self.write("src/sm90/a/kernel.cu", KERNEL.replace("{ part", "{\n  /* why\n not */ part").replace("h>\n", "h>  // x\n\n"))
        self.write("src/sm90/CMakeLists.txt", "flashmask_room(sm90)\n")
        self.assertEqual(self.check()[0], 0)

    def test_a_comment_mark_inside_a_string_is_no_comment(self):
        self.assertNotEqual(device_record.meaning('f("a // b");'), device_record.meaning('f("a // c");'))
        self.assertEqual(device_record.meaning("x = 1; // a"), device_record.meaning("x = 1;"))
        self.assertNotEqual(device_record.meaning("#define A 1\nx"), device_record.meaning("#define A 1 x"))

    def test_a_new_include_fails(self):
        self.write("src/sm90/a/part.cuh", '#include "sm90/a/host_only.hpp"\n' + FILES["src/sm90/a/part.cuh"])
        self.assertIn("host_only.hpp ends up in a kernel", self.check()[1])

    def test_a_missing_record_a_missing_program_and_a_failed_test_fail(self):
        self.write("tests/device/b_test.cpp", "")
        self.assertIn("device_b_test is not in the record", self.check()[1])
        (self.root / "tests/device/b_test.cpp").unlink()
        self.record["tests"][0]["outcome"] = "failed"
        self.save()
        self.assertIn("A.b: recorded as failed", self.check()[1])
        (self.root / device_record.RECORD).unlink()
        self.assertIn("is missing", self.check()[1])

    def test_a_record_with_edited_sources_fails(self):
        self.write("src/sm90/a/part.cuh", "void part(long);\n")
        self.record["sources"] = device_record.hashes(self.root)
        self.save()
        self.assertIn("edited by hand", self.check()[1])

    def test_a_tree_without_kernels_is_refused(self):
        for path in (self.root / "src/sm90").rglob("*.cu"):
            path.unlink()
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("no kernel source", text)

    def test_a_record_that_is_none_is_a_finding_and_no_traceback(self):
        for content, words in (("{", "as JSON"), ("[1]", "is not a"), (json.dumps(device_record.FORMAT), "has no kernel_hash")):
            self.write("tests/device/record.json", content)
            code, text = self.check()
            self.assertEqual(code, 1)
            self.assertIn(words, text)

    def test_bad_arguments_are_refused_by_name(self):
        for arguments, words in ((["--check", "--only", "x"], "--only belongs to --run"),
                                 (["--hash", "--root", "/nonexistent"], "no kernel source"),
                                 (["--run", "--binaries", "/", "--only", "("], "no regular expression"),
                                 (["--run", "--binaries", "/", "--previous", "/nonexistent"], "is no file")):
            done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)

    def test_nothing_to_run_leaves_the_record_alone(self):
        self.write("bin/nvidia-smi", "#!/bin/sh\necho 'some GPU, 1.0'\n")
        (self.root / "bin/nvidia-smi").chmod(0o755)
        environment = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run([sys.executable, TOOL, "--run", "--root", self.root, "--binaries", self.root / "bin"],
                              capture_output=True, text=True, env=environment)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has no device_*_test", done.stderr)
        self.assertEqual(self.check()[0], 0)

    def test_a_second_run_replaces_only_the_programs_it_ran(self):
        old = [{"program": "a", "x": 1}, {"program": "b", "x": 1}]
        self.assertEqual(device_record.merged(old, [{"program": "b", "x": 2}], "program"),
                         [{"program": "a", "x": 1}, {"program": "b", "x": 2}])

    def test_what_does_not_fit_into_the_budget_is_left_and_not_recorded(self):
        record, saved = {"tests": [], "benchmarks": []}, []

        def passing(seconds):
            return [{"program": "a", "name": "A.a", "outcome": "passed", "given": seconds}]

        def cut(seconds):
            return [{"program": "b", "name": "all", "outcome": f"ended without a report (timeout after {seconds:.0f} s)"}]
        todo = [("tests", "a", passing), ("tests", "b", cut), ("benchmarks", "c", None)]
        left = device_record.run_jobs(record, todo[:2], 280, 100, lambda: saved.append(len(record["tests"])), 1)
        self.assertEqual((left, saved), (["b"], [1]))
        self.assertLessEqual(record["tests"][0]["given"], 100)
        self.assertEqual(device_record.run_jobs(record, todo, 280, 5, lambda: None, 2), ["a", "b", "c"])
        # With time to spare a program that runs too long is a finding.
        self.assertEqual(device_record.run_jobs(record, todo[1:2], 280, 1000, lambda: None, 1), [])
        self.assertIn("timeout after 280 s", record["tests"][1]["outcome"])
        self.assertTrue(device_record.is_done(record, "tests", "a"))
        self.assertFalse(device_record.is_done(record, "tests", "b"))
        for unfinished in ({"error": "ended with 1"}, {"left_out": ["full 8192"]}):
            self.assertFalse(device_record.is_done({"benchmarks": [{"program": "c", **unfinished}]}, "benchmarks", "c"))

    def test_tests_run_at_once_and_keep_their_order_and_benchmarks_wait(self):
        running, most, record = [], [], {"tests": [], "benchmarks": []}

        def job(kind, name, seconds):
            def start(_):
                running.append(name)
                time.sleep(seconds)
                most.append(sorted(running))
                running.remove(name)
                return [{"program": name, "outcome": "passed"}]
            return (kind, name, start)
        todo = [job("benchmarks", "x", 0.05), job("tests", "a", 0.6), job("tests", "b", 0.3), job("benchmarks", "y", 0.05)]
        self.assertEqual(device_record.run_jobs(record, todo, 280, 100, lambda: None, 2), [])
        self.assertEqual(most, [["a", "b"], ["a"], ["x"], ["y"]])
        self.assertEqual([t["program"] for t in record["tests"]], ["a", "b"])

    def program(self, name, text):
        self.write(name, "#!/bin/sh\n" + text)
        (self.root / name).chmod(0o755)

    def test_a_folder_of_programs_is_run_in_parts_into_another_folder(self):
        report = '{"testsuites":[{"testsuite":[{"classname":"A","name":"b","time":"0.1s","result":"COMPLETED","worst_out":"0.5"}]}]}'
        gtest = f"echo x >>{self.root}/ran; echo '{report}' >${{1#--gtest_output=json:}}\n"
        self.program("bin/device_a_test", gtest)
        self.program("bin/device_b_test", gtest)
        self.program("bin/flashmask", 'echo "{\\"results\\": [\\"$*\\"]}"\n')
        self.program("path/nvidia-smi", "echo 'NVIDIA H200, 580.1'\n")
        (self.root / device_record.RECORD).unlink()
        output = self.root / "out/deep/record.json"
        environment = {**os.environ, "PATH": f"{self.root}/path:{os.environ['PATH']}"}

        def call(*more):
            done = subprocess.run([sys.executable, TOOL, "--run", "--root", self.root, "--binaries", self.root / "bin", "--output",
                                   output, *more], capture_output=True, text=True, env=environment)
            return done.returncode, json.loads(output.read_text())
        code, record = call("--only", "device_a")
        self.assertEqual((code, [t["program"] for t in record["tests"]], record["benchmarks"]), (0, ["device_a_test"], []))
        self.assertEqual((record["tests"][0]["worst"], record["gpu"]), ({"out": 0.5}, {"name": "NVIDIA H200", "driver": "580.1"}))
        code, record = call("--only", "device_|table d128 8192", "--resume")
        self.assertEqual((code, [t["program"] for t in record["tests"]]), (0, ["device_a_test", "device_b_test"]))
        self.assertEqual((self.root / "ran").read_text(), "x\nx\n", "device_a_test was there already")
        self.assertEqual(record["benchmarks"][0]["results"],
                         ["bench --backend sm90 --twelve --rows 8192 --batch 4 --heads 16 --json -"])

    def test_without_a_gpu_or_binaries_it_says_so(self):
        environment = {**os.environ, "PATH": "/nonexistent"}
        for binaries, words in ((self.root, "no GPU here"), (self.root / "absent", "is no folder")):
            done = subprocess.run([sys.executable, TOOL, "--run", "--root", self.root, "--binaries", binaries], capture_output=True,
                                  text=True, env=environment)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)

    def test_figures_are_found_in_lists_and_lines_and_a_failure_is_one(self):
        self.assertEqual(device_record.figures_in('[\n  {"a": 1,\n "b": [2]},\n {"a": 2}\n]\n'), [{"a": 1, "b": [2]}, {"a": 2}])
        self.assertEqual(device_record.figures_in('noise\n[\n  {"a": 1},\n  {"a": [2]},\n  {"cut'), [{"a": 1}, {"a": [2]}])
        self.assertEqual(device_record.figures_in('3\n'), [])
        script = "print('{\"tflops\": 600}'); print('noise'); raise SystemExit(3)"
        self.assertEqual(device_record.run_bench([sys.executable, "-c", script], "bench", 60),
                         [{"program": "bench", "tflops": 600}, {"program": "bench", "error": "ended with 3"}])


if __name__ == "__main__":
    unittest.main()
