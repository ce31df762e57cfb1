#!/usr/bin/env python3
"""--backend sm90 without a GPU: what the built command refuses, and, with a GPU made of the naive reference in its place,
everything around the kernels. Usage: sm90_command_test.py PATH_OF_FLASHMASK PATH_OF_FLASHMASK_WITH_FAKE_DEVICE"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

FAKE = os.path.abspath(sys.argv.pop())
BINARY = os.path.abspath(sys.argv.pop())
SMALL = ["--heads", "4:2", "--head-dim", "16", "--threads", "2"]
SM90 = ["--backend", "sm90"]
OUTPUTS = ["out", "lse", "dq", "dk", "dv"]


def run(binary, *arguments, environment=None):
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run([binary, *arguments], capture_output=True, text=True, cwd=directory, timeout=300,
                              env={**os.environ, **(environment or {})})
    return done.returncode, done.stdout, done.stderr


class Refusals(unittest.TestCase):
    def test_without_a_gpu_run_and_bench_say_what_is_missing_before_any_work(self):
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        # A mask that would take minutes: nothing may be built before the refusal.
        for command in (["run", "--rows", "16000000"], ["bench", "--twelve", "--rows", "16000000"]):
            code, out, error = run(BINARY, *command, *SM90, environment=hidden)
            self.assertEqual((code, out), (2, ""), error)
            self.assertIn("Hopper GPU", error)
            self.assertIn("cpu", error)
            self.assertTrue(error.startswith("flashmask: error: "), error)

    def test_bad_options_are_named_before_the_missing_gpu(self):
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        for arguments, part in ((["--heads", "5:2"], "--heads 5:2"), (["--heads", "0"], "--heads 0"),
                                (["--heads", "abc"], "--heads abc"), (["--mask", "nosuch"], "\"nosuch\" is not known"),
                                (["--workload", "nosuch"], "nosuch"), (["--mask-heads", "3"], "--mask-heads 3"),
                                (["--json", "/nonexistent/x"], "/nonexistent/x: cannot open it for writing"),
                                (["--rows", "0"], "--rows 0"), (["--import", "nosuch.json"], "nosuch.json")):
            for command in ("run", "bench"):
                for binary in (BINARY, FAKE):
                    code, out, error = run(binary, command, *SM90, *arguments, environment=hidden)
                    self.assertEqual((code, out), (2, ""), (command, arguments, error))
                    self.assertIn(part, error)
                    self.assertNotIn("Hopper", error)
        for arguments in (["--workload", "nosuch"], ["--mask", "causal"], ["--mask-heads", "3"]):
            code, out, error = run(BINARY, "bench", *SM90, "--twelve", *arguments, environment=hidden)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertNotIn("Hopper", error)

    def test_options_that_the_kernels_cannot_serve_are_named(self):
        for arguments, part in ((["run", "--dtype", "f32"], "--dtype f32 with --backend sm90"),
                                (["bench", "--dtype", "f32"], "--dtype f32 with --backend sm90"),
                                (["run", "--head-dim", "100"], "--head-dim 100 with --backend sm90"),
                                (["bench", "--head-dim", "136"], "--head-dim 136 with --backend sm90"),
                                (["run", "--ranks", "2"], "--ranks with --backend sm90"),
                                (["run", "--check", "contamination"], "--check contamination with --backend sm90")):
            for binary in (BINARY, FAKE):
                code, out, error = run(binary, *arguments, *SM90)
                self.assertEqual((code, out), (2, ""), arguments)
                self.assertIn(part, error)


class Run(unittest.TestCase):
    def report(self, *arguments, code=0, environment=None):
        done, out, error = run(FAKE, "run", *SMALL, *SM90, *arguments, "--json", "-", environment=environment)
        self.assertEqual((done, error), (code, ""))
        return json.loads(out)

    def test_the_report_is_that_of_the_cpu_with_device_tiles_and_map_times(self):
        report = self.report("--workload", "equal:3", "--rows", "200", "--batch", "2")
        _, cpu, _ = run(FAKE, "run", *SMALL, "--workload", "equal:3", "--rows", "200", "--batch", "2", "--json", "-")
        self.assertEqual(set(report) - set(json.loads(cpu)), {"sm90"})
        self.assertIs(report["passed"], True, report["failures"])
        self.assertEqual((report["backend"], report["sm90"]["device"], report["sm90"]["driver"]), ("sm90", "fake GPU", "1.2.3"))
        self.assertEqual((report["sm90"]["forward_tile"], report["sm90"]["backward_tile"]), ([192, 80], [64, 128]))
        self.assertEqual(report["sm90"]["map_ms"], {"forward": 0.02, "backward": 0.03})
        self.assertEqual(report["time_ms"], {"classify": 0.05, "forward": 0.5, "backward": 0.5})
        for name in OUTPUTS:
            self.assertLessEqual(report["errors"][name], report["tolerances"][name])
            self.assertLessEqual(report["probe"]["errors"][name], report["probe"]["tolerances"][name])

    def test_rounded_probabilities_pass_oracle_and_probes_on_every_mask_and_dtype(self):
        for index, mask in enumerate(("full", "causal", "sliding_window", "causal_document", "share_question",
                                      "global_sliding_window", "qk_sparse_blocks", "random_eviction")):
            report = self.report("--mask", mask, "--rows", "210", "--dtype", ("bf16", "fp16")[index % 2])
            self.assertIs(report["passed"], True, (mask, report["failures"]))

    def test_a_wrong_element_from_the_device_fails_the_run(self):
        for name in ("out", "dk"):
            report = self.report("--mask", "causal", "--rows", "150", code=1, environment={"FLASHMASK_FAKE_DAMAGE": name})
            self.assertIs(report["passed"], False)
            self.assertTrue(any(failure.startswith(name + " at") for failure in report["failures"]), report["failures"])

    def test_people_read_the_device_and_its_tiles(self):
        code, out, _ = run(FAKE, "run", *SMALL, *SM90, "--mask", "causal", "--rows", "100")
        self.assertEqual(code, 0)
        self.assertIn("fake GPU, driver 1.2.3", out)
        self.assertIn("192 x 80 forward, 64 x 128 backward", out)


class Bench(unittest.TestCase):
    def test_twelve_masks_at_any_rows_with_burst_and_sustained(self):
        code, out, error = run(FAKE, "bench", *SMALL, *SM90, "--twelve", "--rows", "1000", "--json", "-")
        self.assertEqual((code, error), (0, ""))
        bench = json.loads(out)
        self.assertEqual((bench["backend"], bench["machine"]["gpu"], bench["machine"]["driver"]), ("sm90", "fake GPU", "1.2.3"))
        self.assertIn("45 ms", bench["protocol"]["sustained"])
        self.assertEqual(len(bench["results"]), 12)
        for result in bench["results"]:
            self.assertEqual(result["shape"]["rows"], 1000)
            self.assertEqual(result["sm90"]["forward_tile"], [192, 80])
            for name, factor in (("forward", 1), ("backward", 2.5)):
                timed, steady = result[name], result[name]["sustained"]
                self.assertEqual((timed["time_ms"]["samples"], steady["time_ms"]["samples"]), (9, 2))
                work = factor * 4 * 16 * 4 * result["mask"]["visible_cells"]
                self.assertAlmostEqual(timed["tflops"]["element"], work / timed["time_ms"]["median"] / 1e9)
                self.assertAlmostEqual(steady["tflops"]["element"], work / 1.25 / 1e9)
                self.assertGreaterEqual(steady["tflops"]["tile"], steady["tflops"]["element"])

    def test_people_get_a_table_with_sustained_figures_and_means(self):
        code, out, _ = run(FAKE, "bench", *SMALL, *SM90, "--twelve", "--rows", "1000", "--repeats", "4")
        self.assertEqual(code, 0)
        self.assertIn("sustained", out)
        self.assertIn("fake GPU, driver 1.2.3, 3 warm-ups, 4 repeats", out)
        self.assertIn("geometric mean of 12 masks", out)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
