#!/usr/bin/env python3
"""Runs the built `flashmask` over good inputs. Usage: command_test.py PATH_OF_FLASHMASK [CLASS...] (default: all)"""
import json
import math
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from command_support import BINARY, SMALL, flashmask

OUTPUTS = ["out", "lse", "dq", "dk", "dv"]


class Ranks(unittest.TestCase):
    DOCUMENTS = ["--workload", "histogram", "--rows", "600", "--seed", "3"]

    def report(self, *arguments, code=0):
        done, out, error = flashmask("run", *SMALL, *self.DOCUMENTS, *arguments, "--json", "-")
        self.assertEqual((done, error), (code, ""))
        return json.loads(out)

    def test_every_plan_kind_passes_and_sends_exactly_what_is_needed(self):
        for plan, ranks, nodes in (("hcc_ipo", 5, 2), ("contiguous", 3, 1), ("dual_chunk", 4, 2), ("lpt", 6, 3)):
            report = self.report("--ranks", str(ranks), "--nodes", str(nodes), "--plan", plan, "--chunk", "24")
            self.assertIs(report["passed"], True, plan)
            parallel = report["context_parallel"]
            self.assertEqual((parallel["plan"], parallel["ranks"], parallel["nodes"]), (plan, ranks, nodes))
            self.assertEqual((parallel["chunk"], parallel["chunks"]), (24, 25))
            self.assertIs(parallel["bytes_equal"], True)
            self.assertGreaterEqual(parallel["peak"], parallel["lower_bound"])
            self.assertEqual(sum(rank["rows"] for rank in parallel["by_rank"]), 600)
            for rank in parallel["by_rank"]:
                self.assertEqual(rank["gather_bytes"]["sent"], rank["gather_bytes"]["needed"])
                self.assertEqual(rank["reduce_bytes"]["sent"], rank["reduce_bytes"]["needed"])
                self.assertEqual(rank["chunks_needed"] + rank["chunks_pruned"], 25)
            self.assertGreater(sum(rank["gather_bytes"]["sent"]["inside"] for rank in parallel["by_rank"]), 0)

    def test_a_plan_file_serves_its_own_mask_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "plan.json")
            layout = ["--ranks", "4", "--nodes", "2"]
            code, _, error = flashmask("plan", *self.DOCUMENTS, *layout, "--chunk", "24", "--json", plan)
            self.assertEqual(code, 0, error)
            self.assertIs(self.report(*layout, "--plan", plan)["passed"], True)
            code, out, error = flashmask("run", *SMALL, "--mask", "causal", "--rows", "600", *layout, "--plan", plan)
            self.assertEqual((code, out), (2, ""))
            self.assertIn("made for another mask", error)

    def test_a_plan_file_in_cells_carries_the_cells_of_this_mask(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "plan.json")
            layout = ["--rows", "600", "--ranks", "4"]
            for layers, cells_of_causal in (("causal:1", True), ("causal:3", True), ("causal:2,sliding_window:1", True),
                                            ("sliding_window:1", False), ("sliding_window:2", False)):
                # A window of 590 of 600 needs every chunk that causal needs, and sees fewer cells of the last rows.
                window = ["--window", "590"] if "window" in layers else []
                code, _, error = flashmask("plan", "--layers", layers, *window, *layout, "--chunk", "24", "--unit", "cells",
                                           "--json", plan)
                self.assertEqual(code, 0, error)
                code, _, error = flashmask("run", *SMALL, "--mask", "causal", *layout, "--plan", plan)
                self.assertEqual(code, 0 if cells_of_causal else 2, layers + error)
                if not cells_of_causal:
                    self.assertIn("cells in the file but", error)

    def test_a_plan_file_in_tiles_carries_what_tiles_of_this_mask_cost(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "plan.json")
            layout = ["--rows", "600", "--ranks", "4"]
            costs = ["--tile", "8x8", "--costs", "1300,1000", "--directions", "both"]
            for layers, tiles_of_causal in (("causal:1", True), ("causal:2,sliding_window:1", True), ("sliding_window:1", False)):
                window = ["--window", "590"] if "window" in layers else []
                code, _, error = flashmask("plan", "--layers", layers, *window, *layout, "--chunk", "24", *costs, "--json", plan)
                self.assertEqual(code, 0, error)
                code, _, error = flashmask("run", *SMALL, "--mask", "causal", *layout, "--plan", plan)
                self.assertEqual(code, 0 if tiles_of_causal else 2, layers + error)
                if not tiles_of_causal:
                    self.assertIn("by tile costs in the file but", error)

    def test_contamination_check_passes_on_a_right_step(self):
        for arguments in (["--ranks", "3"], [], ["--ranks", "4", "--nodes", "2", "--batch", "2", "--chunk", "32"]):
            report = self.report("--check", "contamination", *arguments)
            self.assertIs(report["passed"], True)
            self.assertIn("what every row of every head saw", report["coverage"])

    def test_bad_requests_name_what_is_wrong(self):
        for arguments, words in ((["--ranks", "2", "--nodes", "3"], "--nodes 3"),
                                 (["--ranks", "2", "--plan", "zigzag"], "zigzag"),
                                 (["--ranks", "2", "--plan", "./absent.json"], "absent.json"),
                                 (["--ranks", "-1"], "--ranks"),
                                 (["--ranks", "2", "--mask", "full", "--columns", "700"], "columns")):
            rows = ["--rows", "600"]
            code, out, error = flashmask("run", *SMALL, *rows, *arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertIn(words, error)


class Run(unittest.TestCase):
    def report(self, *arguments):
        code, out, error = flashmask("run", *SMALL, *arguments, "--json", "-")
        self.assertEqual((code, error), (0, ""))
        return json.loads(out)

    def test_report_has_every_key_and_errors_within_tolerances(self):
        report = self.report("--workload", "equal:3", "--rows", "200", "--batch", "2")
        self.assertIs(report["passed"], True)
        self.assertEqual(list(report["errors"]), OUTPUTS)
        self.assertEqual(list(report["tolerances"]), OUTPUTS)
        for name in OUTPUTS:
            self.assertLessEqual(report["errors"][name], report["tolerances"][name])
            self.assertGreater(report["tolerances"][name], 0)
        # 3 documents of 66, 67, 67 in tiles of 128: (0, 1) is masked by causality, (1, 0) holds a shared document
        self.assertEqual(report["tiles"], {"masked": 2, "partial": 6, "unmasked": 0})
        self.assertEqual(report["tile_shape"], [128, 128])
        self.assertEqual(report["rule"], "minmax")
        self.assertEqual(report["visible_cells"], 2 * sum(n * (n + 1) // 2 for n in (66, 67, 67)))
        self.assertAlmostEqual(report["density"]["element"], report["visible_cells"] / (2 * 200 * 200))
        self.assertAlmostEqual(report["density"]["tile"], 3 / 4)
        for name in ("forward", "backward"):
            self.assertGreater(report["time_ms"][name], 0)
            self.assertGreater(report["tflops"][name]["tile"], report["tflops"][name]["element"])
        self.assertIs(report["sampled"], False)

    def test_every_builder_and_dtype_passes(self):
        code, out, _ = flashmask("mask", "--list")
        self.assertEqual(code, 0)
        names = [line.split()[0] for line in out.split("\n\n")[0].splitlines()[1:]]
        self.assertGreaterEqual(len(names), 18)
        for index, name in enumerate(names):
            dtype = ["bf16", "fp16", "f32"][index % 3]
            self.assertTrue(self.report("--mask", name, "--rows", "150", "--dtype", dtype)["passed"], name)

    def test_mask_heads_rectangles_and_empty_extents_pass(self):
        self.assertTrue(self.report("--mask", "random_eviction", "--rows", "130", "--mask-heads", "4")["passed"])
        self.assertTrue(self.report("--mask", "causal", "--rows", "33", "--columns", "140")["passed"])
        self.assertTrue(self.report("--mask", "causal", "--rows", "140", "--columns", "33")["passed"])
        report = self.report("--workload", "equal:2", "--rows", "40", "--columns", "100")  # the last 40 of 100 tokens
        self.assertEqual(report["visible_cells"], sum(range(11, 51)))
        self.assertTrue(self.report("--mask", "full", "--rows", "0")["passed"])
        self.assertTrue(self.report("--mask", "full", "--rows", "5", "--columns", "0")["passed"])

    def test_probe_and_none_leave_the_oracle_out(self):
        report = self.report("--mask", "causal", "--rows", "100", "--check", "probe")
        self.assertEqual(set(report["errors"].values()), {None})
        for name in OUTPUTS:
            self.assertLessEqual(report["probe"]["errors"][name], report["probe"]["tolerances"][name])
        report = self.report("--mask", "causal", "--rows", "100", "--check", "none")
        self.assertEqual(set(report["errors"].values()) | set(report["probe"]["errors"].values()), {None})

    def test_people_get_a_table_and_no_escape_codes(self):
        code, out, error = flashmask("run", *SMALL, "--mask", "causal", "--rows", "100")
        self.assertEqual((code, error), (0, ""))
        self.assertIn("PASSED", out)
        self.assertIn("tolerance", out)
        self.assertNotIn("\x1b", out)

    def test_a_terminal_gets_a_bar_that_is_wiped(self):
        master, terminal = pty.openpty()
        done = subprocess.run([BINARY, "run", *SMALL, "--mask", "causal", "--rows", "100"], stdout=subprocess.PIPE, stderr=terminal,
                              timeout=300)
        os.close(terminal)
        drawn = b""
        try:
            while piece := os.read(master, 1 << 16):  # a terminal hands out what it has in pieces, and then EIO
                drawn += piece
        except OSError:
            pass
        os.close(master)
        drawn = drawn.decode()
        self.assertEqual(done.returncode, 0)
        self.assertIn("100.0%", drawn)
        self.assertTrue(drawn.endswith("\r\x1b[K"), repr(drawn[-40:]))
        self.assertNotIn(b"%]", done.stdout)

    def test_log_lines_come_on_request(self):
        _, _, error = flashmask("run", *SMALL, "--mask", "causal", "--rows", "50", environment={"FLASHMASK_LOG": "run:debug"})
        self.assertIn("[run] causal: batch 1, rows 50", error)

    def test_a_log_that_does_not_exist_is_named_once_with_those_that_do(self):
        for value in ("rnu", "run,rnu,bnech", "run:loud"):
            code, _, error = flashmask("mask", "--mask", "causal", "--rows", "50", environment={"FLASHMASK_LOG": value})
            self.assertEqual(code, 0)
            self.assertEqual(error.count("FLASHMASK_LOG"), 1, error)
            self.assertIn("expected run, bench or all", error)


class LargeJobs(unittest.TestCase):
    def test_are_sampled_and_say_so(self):
        code, out, _ = flashmask("run", "--mask", "causal", "--rows", "1024", "--heads", "16:4", "--check", "oracle")
        self.assertEqual(code, 0, out)
        self.assertIn("float64 oracle on a sample: ", out)
        self.assertIn("PASSED", out)


class Simulate(unittest.TestCase):
    CLUSTER = {"format": "flashmask.cluster", "version": 1, "name": "four", "nodes": 2, "gpus_per_node": 2, "sms": 10,
               "communication_sms": 2, "tflops": {"forward": {"unmasked": 50, "partial": 40}, "backward": 45},
               "inside": {"gbytes_per_s": 100, "latency_us": 1}, "between": {"gbytes_per_s": 10, "latency_us": 5}}
    MASK = ["--workload", "equal:3", "--rows", "4096", "--heads", "8:2"]

    def simulate(self, cluster, *arguments):
        with tempfile.TemporaryDirectory() as directory:
            path, svg = os.path.join(directory, "cluster.json"), os.path.join(directory, "step.svg")
            with open(path, "w") as file:
                json.dump(cluster, file)
            code, out, error = flashmask("simulate", *self.MASK, "--cluster", path, "--svg", svg, "--json", "-", *arguments)
            picture = pathlib.Path(svg).read_text() if os.path.exists(svg) else ""
        return code, out, error, picture

    def test_a_step_on_a_described_cluster_with_its_picture(self):
        code, out, error, picture = self.simulate(self.CLUSTER)
        self.assertEqual((code, error), (0, ""))
        result = json.loads(out)
        self.assertEqual((result["cluster"], result["ranks"]), ("four", 4))
        step = result["steps"][0]
        for name in ("forward", "backward"):
            self.assertEqual(len(step[name]["ranks"]), 4)
            self.assertGreaterEqual(step[name]["time_ms"], step[name]["attention_ms"])
            self.assertLessEqual(step[name]["overlap_efficiency"], 1)
        self.assertAlmostEqual(step["step_ms"], step["forward"]["time_ms"] + step["backward"]["time_ms"])
        xml.etree.ElementTree.fromstring(picture)
        self.assertGreater(picture.count("<rect"), 8)

    def test_compare_lists_the_ablation_and_pruning_never_moves_more(self):
        code, out, _, _ = self.simulate(self.CLUSTER, "--compare")
        self.assertEqual(code, 0)
        steps = {step["name"]: step for step in json.loads(out)["steps"]}
        self.assertEqual(len(steps), 7)
        self.assertLess(steps["both"]["bytes"]["between"], steps["both, without pruning"]["bytes"]["between"])
        self.assertLessEqual(steps["both"]["step_ms"], steps["dual chunk, all-gather"]["step_ms"])

    def test_a_table_says_what_its_efficiencies_mean(self):
        _, out, _ = flashmask("simulate", "--mask", "causal", "--rows", "1024", "--compare")
        self.assertIn("E = 1 - exposed / communication", out)
        self.assertIn("below 0 a pass loses even more", out)

    def test_wrong_cluster_files_name_the_member(self):
        for change, words in (({"sms": 0}, "sms"), ({"inside": {"gbytes_per_s": 1}}, "latency_us"), ({"typo": 1}, "typo"),
                              ({"between": {"gbytes_per_s": 0, "latency_us": 1}}, "\"gbytes_per_s\" is 0"), ({"version": 2}, "version"),
                              ({"tflops": {"forward": 0, "backward": 1}}, "\"forward\" is 0"),
                              ({"tflops": {"forward": 1e308, "backward": 1}}, "[0.001, 1e9]"),
                              ({"between": {"gbytes_per_s": 1, "latency_us": 1e308}}, "must be 0 or lie in [0.001, 1e9]"),
                              ({"inside": {"gbytes_per_s": 1, "latency_us": 5e-324}}, "must be 0 or lie in [0.001, 1e9]"),
                              ({"launch_us": 1e10}, "\"launch_us\" is 10000000000"), ({"sum_gbytes_per_s": 1e-300}, "[0.001, 1e9]"),
                              ({"calibration": "c.json"}, "\"tflops.forward\" must be the rate of unmasked tiles alone"),
                              ({"communication_sms": 10}, "communication_sms"), ({"tflops": 5}, "tflops")):
            code, out, error, _ = self.simulate({**self.CLUSTER, **change})
            self.assertEqual((code, out), (2, ""), change)
            self.assertIn(words, error)


class Mask(unittest.TestCase):
    def test_sheet_and_picture(self):
        code, out, error = flashmask("mask", "--mask", "causal", "--rows", "256", environment={"LC_ALL": "C"})
        self.assertEqual((code, error), (0, ""))
        self.assertIn("32,896 of 65,536 cells", out)
        self.assertIn("  |#", out)

    def test_explain_names_intervals_documents_and_tile(self):
        _, out, _ = flashmask("mask", "--workload", "pack:8192", "--explain", "4000", "100")
        self.assertIn("row 4000 does not see column 100", out)
        self.assertIn("[LTS, LTE): 3145 <= 4000 < 8192", out)
        self.assertIn("document 1 [3145, 5348), column 100 to document 0 [0, 3145)", out)
        self.assertIn("is masked", out)

    def test_every_export_is_imported_back(self):
        digest = json.loads(flashmask("mask", "--workload", "equal:3", "--rows", "50", "--json", "-")[1])["digest"]
        for export, form in (("vectors", "mask"), ("dense", "dense"), ("cu_seqlens", "cu_seqlens")):
            _, text, _ = flashmask("mask", "--workload", "equal:3", "--rows", "50", "--export", export)
            code, out, error = flashmask("mask", "--import", "-", "--format", form, "--json", "-", stdin=text)
            self.assertEqual((code, error), (0, ""), export)
            self.assertEqual(json.loads(out)["digest"], digest, export)

    def test_foreign_formats_are_read(self):
        cases = [("document_ids", "[1,1,2,2,2]", ["--causal"], 3 + 6), ("document_ids_zero_is_padding", "[1,1,0,2]", [], 5),
                 ("position_ids_start_at_zero", "[0,1,2,3,1]", ["--causal"], 15), ("position_ids_break", "[0,1,2,3,1]", ["--causal"], 11),
                 ("attention_mask", "[[1,1,0],[1,1,1]]", [], 6 + 9), ("dense", "[[1,0],[1,1]]", [], 3),
                 ("startend_row_indices", "[[[[2],[2],[4],[4]]]]", ["--causal"], 6)]
        for form, text, more, cells in cases:
            code, out, error = flashmask("mask", "--import", "-", "--format", form, *more, "--json", "-", stdin=text)
            self.assertEqual((code, error), (0, ""), form)
            self.assertEqual(json.loads(out)["visible_cells"], cells, form)

    def test_svg_is_well_formed(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "mask.svg")
            self.assertEqual(flashmask("mask", "--workload", "histogram", "--svg", path)[0], 0)
            root = xml.etree.ElementTree.parse(path).getroot()
        self.assertGreater(len(root.findall("{http://www.w3.org/2000/svg}rect")), 64)


class Bench(unittest.TestCase):
    def test_schema(self):
        code, out, error = flashmask("bench", *SMALL, "--twelve", "--workload", "equal:2", "--rows", "128", "--repeats", "2", "--json", "-")
        self.assertEqual((code, error), (0, ""))
        bench = json.loads(out)
        self.assertEqual((bench["format"], bench["version"]), ("flashmask.bench", 1))
        self.assertEqual(len(bench["results"]), 12)
        for key in ("cpu", "cores", "gpu", "driver", "compiler"):
            self.assertIn(key, bench["machine"])
        for result in bench["results"]:
            for name in ("forward", "backward"):
                times = result[name]["time_ms"]
                self.assertLessEqual(times["min"], times["median"])
                self.assertLessEqual(times["median"], times["max"])
                self.assertEqual(times["samples"], 2)
                self.assertEqual(result[name]["peers"], [])
            ratio = result["backward"]["tflops"]["element"] * result["backward"]["time_ms"]["median"]
            self.assertTrue(math.isclose(ratio, 2.5 * result["forward"]["tflops"]["element"] * result["forward"]["time_ms"]["median"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=1)
