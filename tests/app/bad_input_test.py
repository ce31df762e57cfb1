#!/usr/bin/env python3
"""What the built `flashmask` refuses, and how it says so. Usage: bad_input_test.py PATH_OF_FLASHMASK"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from command_support import BINARY, SMALL, flashmask


class BadInput(unittest.TestCase):
    CASES = [
        (["run", "--mask", "caussal"], "caussal"),
        (["run", "--workload", "eqal:3"], "known: histogram"),
        (["run", "--workload", "/nonexistent.json"], "/nonexistent.json: cannot open"),
        (["run", "--heads", "8:3"], "--heads 8:3: expected Q:KV"),
        (["run", "--mask", "causal", "--rows", "64", "--mask-heads", "3"], "--mask-heads 3: expected 1, the KV heads (2)"),
        (["run", "--head-dim", "0"], "--head-dim"),
        (["run", "--head-dim", "257"], "--head-dim"),
        (["run", "--dtype", "f64"], "--dtype"),
        (["run", "--backend", "tpu"], "--backend"),
        (["run", "--check", "maybe"], "--check"),
        (["run", "--rows", "-1"], "--rows"),
        (["run", "--rows", "99999999999999999999"], "--rows"),
        (["run", "--rows", "ten"], "--rows"),
        (["run", "--rows", "100", "--workload", "pack:8192"], "8192"),
        (["run", "--mask", "prefix_tree", "--workload", "equal:3"], "--mask prefix_tree needs trees"),
        (["run", "--mask", "document", "--workload", "tree:2,2,16"], "--mask document needs documents"),
        (["mask", "--workload", "histogram", "--rows", "0"], "--rows 0 with workload histogram"),
        (["mask", "--workload", "equal:2", "--columns", "0"], "--columns 0 with workload equal:2"),
        (["mask", "--import", "x", "--rows", "4"], "--rows"),
        (["mask", "--import", "x", "--batch", "2"], "--batch"),
        (["run", "--seed", "-1"], "--seed"),
        (["run", "--threads", "-2"], "--threads"),
        (["run", "--unknown"], "--unknown"),
        (["run", "--mask", "causal", "--import", "x"], "--import"),
        (["run", "--mask", "window", "--left", "-3"], "--left -3: expected \"unbounded\""),
        (["run", "--mask", "causal", "--rows", "64", "--json", "/nonexistent/x.json", *SMALL], "/nonexistent/x.json: cannot open"),
        (["mask"], "name a mask"),
        (["mask", "--mask", "causal", "--rows", "10", "--explain", "10", "0"], "--explain 10 0: row 10 is outside [0, 10), the rows of the mask"),
        (["mask", "--mask", "causal", "--rows", "64", "--explain", "40"], "--explain 40: expected two whole numbers from 0 on, ROW COLUMN"),
        (["mask", "--mask", "causal", "--rows", "64", "--explain", "40", "x"], "--explain 40 x: expected two whole numbers"),
        (["mask", "--mask", "causal", "--rows", "64", "--explain", "4", "5", "6"], "--explain 4 5 6: expected two whole numbers"),
        (["mask", "--mask", "causal", "--rows", "64", "--explain", "-1", "0"], "--explain -1 0: expected two whole numbers"),
        (["mask", "--mask", "causal", "--rows", "64", "--explain", "0", "64"], "--explain 0 64: column 64 is outside [0, 64)"),
        (["mask", "--mask", "causal", "--rows", "64", "--explain"], "--explain: expected two whole numbers"),
        (["mask", "--mask", "causal", "--rows", "64", "--at", "0"], "--at 0: expected two whole numbers from 0 on, BATCH_ROW MASK_HEAD"),
        (["run", "--rank", "2"], "--rank: flashmask run has no such option; did you mean --ranks?"),
        (["plan", "--loads", "1,2", "--rank=2"], "--rank: flashmask plan has no such option; did you mean --ranks?"),
        (["bench", "balance", "--tabel", "ablation"], "--tabel: flashmask bench balance has no such option; did you mean --table?"),
        (["plan", "--loads", "1,2", "--plan", "lpt"], "--plan: flashmask plan has no such option; how to plan is --kind, and a plan file is read by --verify"),
        (["plan", "--frobnicate", "3"], "--frobnicate: flashmask plan has no such option"),
        (["plan", "3", "4"], "3 4: flashmask plan has no use for it"),
        (["run", "--rows", "0"], "--rows 0 with workload histogram, the default where neither --mask nor --workload is given: expected 1 to"),
        (["mask", "--mask", "causal", "--rows", "10", "--at", "0", "1"], "mask head 1 is outside [0, 1)"),
        (["mask", "--mask", "random_eviction", "--rows", "40", "--export", "cu_seqlens"], "column"),
        (["mask", "--mask", "full", "--rows", "100000", "--export", "dense"], "--export dense"),
        (["mask", "--import", "-", "--format", "foo"], "--format foo: known are mask, cu_seqlens"),
        (["bench", "--twelve", "--mask", "causal"], "--twelve"),
        (["bench", "--twelve", "--frame", "4"], "--frame 4: mask full has no use for it, only video_block_causal"),
        (["mask", "--mask", "causal", "--window", "7"], "--window 7: mask causal has no use for it, only sliding_window and"),
        (["mask", "--workload", "equal:2", "--prefix", "7"], "--prefix 7: mask causal_document has no use for it"),
        (["run", "--mask", "window", "--buckets", "3", *SMALL], "--buckets 3: mask window has no use for it, only hash_sparse"),
        (["mask", "--mask", "causal", "--output", "x"], "--output x: it is where --export writes"),
        (["mask", "--mask", "causal", "--rows", "8", "--json", "-", "--explain", "1", "0"], "--explain 1 0: standard output"),
        (["mask", "--mask", "causal", "--rows", "8", "--json", "-", "--export", "dense"], "--export and --json both"),
        (["mask", "--mask", "causal", "--rows", "8", "--svg", ""], '--svg "": its value is empty'),
        (["mask", "--mask", "causal", "--rows="], '--rows "": its value is empty'),
        (["mask", "--mask", "causal", "--rows", "010"], "--rows: 010 is not a whole number from 0 to 16777216"),
        (["mask", "--mask", "causal", "--rows", "1e3"], "--rows: 1e3 is not a whole number"),
        (["run", "--threads", "0x2", *SMALL[:4]], "--threads: 0x2 is not a whole number from 0 to 4096"),
        (["mask", "--list", "--rows", "8"], "--rows 8: --list prints names"),
        (["mask", "--import", "x.json", "--rows", "8"], "--rows 8: --import takes the whole mask from its file"),
        (["mask", "--import", "x.json", "--mask", "causal"], "--import takes the whole mask from its file"),
        (["mask", "--import", "x.json", "--window", "8"], "--window 8: --import takes the whole mask from its file"),
        (["mask", "--mask", "causal", "--seed", "18446744073709551615"], "18446744073709551615 is not a whole number from 0 to"),
        (["mask", "--mask", "causal", "--seed", "0x10"], "--seed: 0x10 is not a whole number"),
        (["run", "--nodes", "3", *SMALL], "--nodes 3: it belongs to --ranks"),
        (["run", "--plan", "lpt", *SMALL], "--plan lpt: it belongs to --ranks"),
        (["run", "--ranks", "2", "--plan", "./p.json", "--chunk", "64", *SMALL], "--chunk 64: the plan file says"),
        (["simulate", "--ranks", "1024"], "--ranks 1024 on --nodes 1: cluster 2 nodes of 8 H100 has 2 nodes of 8 devices"),
        (["simulate", "--ranks", "17", "--nodes", "2"], "--ranks 17"),
        (["simulate", "--ranks", "8", "--nodes", "4"], "--nodes 4: cluster 2 nodes of 8 H100 has 2 nodes"),
        (["simulate", "--nodes", "1"], "--nodes 1: without --ranks"),
        (["simulate", "--deadline", "5"], "--deadline 5: nothing waits"),
        (["simulate", "--compare", "--direct"], "--direct: --compare runs its own variants"),
        (["simulate", "--paper", "--mask", "causal"], "--mask causal: --paper has masks"),
        (["simulate", "--draws", "3"], "--draws 3: it belongs to --paper"),
        (["bench", "balance", "--table", "ablation", "--repeats", "3"], "--repeats 3: --table ablation times nothing"),
        (["bench", "--repeats", "0"], "--repeats"),
        (["mask", "--mask", "causal", "--rows", "8", "--json", "-", "--svg", "-"], "--json and --svg both write to standard output"),
        (["mask", "--mask", "causal", "--rows", "8", "--export", "dense", "--svg", "-"], "--export and --svg both"),
        (["mask", "--mask", "causal", "--rows", "8", "--svg", "-", "--explain", "1", "0"], "--explain 1 0: standard output"),
        (["mask", "--mask", "causal", "--rows", "8", "--json", "a", "--svg", "./a"], "--json a and --svg ./a: one file"),
        (["mask", "--mask", "causal", "--rows", "8", "--export", "dense", "--output", "a", "--svg", "b/../a"], "--output a and --svg"),
        (["plan", "--loads", "1", "--ranks", "1", "--json", "-", "--svg", "-"], "--json and --svg both"),
        (["plan", "--loads", "1", "--ranks", "1", "--json", "a", "--svg", "a"], "--json a and --svg a: one file"),
        (["simulate", "--json", "-", "--svg", "-"], "--json and --svg both"),
        (["simulate", "--json", "a", "--svg", "a"], "--json a and --svg a: one file"),
        (["mask", "--mask", "chunked", "--chunk-length", "0"], "--chunk-length: 0 is not a whole number from 1"),
        (["mask", "--mask", "video_block_causal", "--frame", "0"], "--frame: 0 is not a whole number from 1"),
        (["run", "--ranks", "2", "--plan", "foo", *SMALL], "--plan: foo not in {hcc_ipo,contiguous,dual_chunk"),
        (["simulate", "--plan", "foo"], "--plan: foo not in {hcc_ipo"),
        (["run", "--ranks", "2", "--plan", "per_document_dual_chunk", "--workload", "equal:2", "--rows", "768", "--chunk", "64", *SMALL],
         "--plan per_document_dual_chunk: document 0 has 384"),
        (["plan", "--epsilon", "1e-7"], "--epsilon: 1e-7 is no whole number of millionths"),
        (["plan", "--epsilon", "0.0100001"], "--epsilon: 0.0100001 is no whole number of millionths"),
        (["plan", "--mask", "causal", "--rows", "2097160", "--chunk", "16"], "--chunk 16: 131073 chunks in 1 batch rows are more than"),
        (["plan", "--kind", "foo"], "--kind: foo not in {hcc_ipo"),
        (["plan", "--kind", "per_document_dual_chunk", "--workload", "equal:2", "--rows", "768", "--ranks", "2", "--chunk", "64"],
         "--kind per_document_dual_chunk: document 0 has 384"),
        (["frobnicate"], "frobnicate: no such subcommand; there are run, mask, bench, simulate, plan"),
        ([], "a subcommand is missing; there are run, mask, bench, simulate, plan"),
    ]

    def test_a_mask_without_documents_refuses_padding(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "padded.json"
            path.write_text('{"format":"flashmask.workload","version":1,"rows":4,'
                            '"batch":[{"documents":[2],"padding":2}],"mask":"document"}')
            for mask, expected in (("full", 2), ("causal", 2), ("document", 0)):
                code, _, error = flashmask("mask", "--workload", str(path), "--mask", mask)
                self.assertEqual(code, expected, mask)
                self.assertEqual("padding" in error, expected == 2, error)

    def test_every_bad_argument_is_named_and_exits_with_2(self):
        for arguments, part in self.CASES:
            code, out, error = flashmask(*arguments)
            self.assertEqual(code, 2, (arguments, out, error))
            self.assertIn(part, error, arguments)
            self.assertTrue(error.startswith("flashmask: error: "), error)
            self.assertEqual(out, "", arguments)

    def test_lost_standard_output_is_no_success(self):
        for arguments in (["mask", "--mask", "causal", "--rows", "8"], ["plan", "--loads", "1,2", "--ranks", "2"], ["--help"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([BINARY, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (2, "flashmask: error: standard output: cannot write\n"))

    def test_a_picture_on_standard_output_is_all_that_is_there_and_a_device_takes_two(self):
        for arguments in (["mask", "--mask", "causal", "--rows", "64"], ["plan", "--mask", "causal", "--rows", "512", "--ranks", "2"],
                          ["simulate", "--mask", "causal", "--rows", "512"]):
            code, out, error = flashmask(*arguments, "--svg", "-")
            self.assertEqual((code, error), (0, ""))
            xml.etree.ElementTree.fromstring(out)
        self.assertEqual(flashmask("mask", "--mask", "causal", "--rows", "64", "--svg", "/dev/null", "--json", "/dev/null")[0], 0)

    def test_bad_files_are_named_with_the_place(self):
        cases = [
            ("mask", "{", "not JSON"),
            ("mask", '{"format":"flashmask.mask","version":9}', "version: 9 is outside"),
            ("mask", '{"format":"flashmask.mask","version":1,"rows":4,"builder":"causal","x":1}', 'unknown key "x"'),
            ("cu_seqlens", "[0,5,3]", ""),
            ("cu_seqlens", '{"q":[0,4]}', '"k" is missing'),
            ("dense", "[[1,0],[1]]", "1 elements, but 2"),
            ("dense", "[[1,0],[[1]]]", "different depth"),
            ("dense", "[[1,2]]", "a cell is 0 or 1, got 2"),
            ("dense", "[[0,1],[1,0],[0,1],[1,0],[0,1]]", "column 0"),
            ("dense", "[[[[[1]]]]]", "nested deeper than 4"),
            ("startend_row_indices", "[[[[1,2,3]]]]", "3"),
            ("attention_mask", "[1,5]", ""),
            ("cu_seqlens", "[0,4,1.5]", "-[2]: expected an integer, as element 0 is one, got the number 1.5"),
            ("cu_seqlens", '{"q":[0,4],"k":[0,4,null]}', "-: k[2]: expected an integer, as element 0 is one, got null"),
            ("cu_seqlens", "[0,4,2147483648]", "-[2]: 2147483648 is outside"),
            ("document_ids", '[[1,1],[1,"b"]]', "-[1][1]: expected an integer, as element 0 is one, got a string"),
            ("document_ids", '["a",1]', "-[0]: expected an integer or an array, got a string"),
            ("dense", "[[1,0],3]", "-[1]: expected an array, as element 0 is one, got an integer"),
            ("dense", "[[1,0],[1,4]]", "-[1][1]: a cell is 0 or 1, got 4"),
            ("mask", '{"format":"flashmask.mask","version":1,"rows":4,"builder":"causal","options":{"window":2}}',
             "-: options: window: builder causal has no use for it"),
        ]
        for form, text, part in cases:
            code, _, error = flashmask("mask", "--import", "-", "--format", form, stdin=text)
            self.assertEqual(code, 2, (form, text))
            self.assertIn(part, error, text)

    def test_causal_is_refused_where_the_file_says_it(self):
        for form, text in (("dense", "[[1]]"), ("mask", "{}"), ("cu_seqlens", '{"q":[0,1],"k":[0,1],"causal":false}')):
            code, _, error = flashmask("mask", "--import", "-", "--format", form, "--causal", stdin=text)
            self.assertEqual(code, 2, form)
            self.assertIn("--causal", error)

    def test_file_names_cannot_reach_the_terminal_as_escape_codes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "\x1b[31mred\x1b[0m\n.json")
            code, _, error = flashmask("mask", "--import", path)
            self.assertEqual(code, 2)
            self.assertIn("\\x1b[31mred\\x1b[0m\\x0a.json: cannot open", error)
            pathlib.Path(path).write_text("[0,4]")
            code, out, error = flashmask("mask", "--import", path, "--format", "cu_seqlens")
            self.assertEqual((code, error), (0, ""))
            self.assertNotIn("\x1b", out)

    def test_every_error_of_a_file_names_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.json")
            for option, text in ((["--workload"], '{"format":"flashmask.workload","version":1,"rows":4,"batch":[{"documents":[2]}]}'),
                                 (["--workload"], '{"format":"flashmask.workload","version":1e30}'),
                                 (["--workload"], '{"format":"flashmask.workload","version":1,"rows":4,"mask":"nothing",'
                                                  '"batch":[{"documents":[4]}]}'),
                                 (["--import"], '{"format":"flashmask.mask","version":1,"rows":4,"builder":"nothing"}'),
                                 (["--format", "cu_seqlens", "--import"], "[0,5,3]"),
                                 (["--format", "attention_mask", "--import"], "[1,5]")):
                pathlib.Path(path).write_text(text)
                code, _, error = flashmask("mask", *option, path)
                self.assertEqual(code, 2, text)
                self.assertIn(path, error)

    def test_help_and_version_exit_with_0(self):
        for arguments in (["--help"], ["run", "--help"], ["mask", "--help"], ["bench", "--help"], ["--version"]):
            code, out, error = flashmask(*arguments)
            self.assertEqual((code, error), (0, ""), arguments)
            self.assertTrue(out)
        self.assertIn("Examples:", flashmask("run", "--help")[1])
        for code in ("0 done", "1 a check failed", "2 bad usage", "3 anything else", "4 nothing wrong was found"):
            self.assertIn(code, flashmask("--help")[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
