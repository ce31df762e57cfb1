#!/usr/bin/env python3
"""Runs `flashmask plan` over good and bad inputs. Usage: plan_command_test.py PATH_OF_FLASHMASK"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BINARY = os.path.abspath(sys.argv.pop(1))
KEYS = ["peak", "lower_bound", "proven_optimal", "method", "imbalance", "assignment", "loads", "inbound_chunks",
        "epsilon", "unit", "time_us"]
MASK = ["--workload", "equal:5", "--rows", "16384"]


class Plan(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def flashmask(self, *arguments, code=0):
        done = subprocess.run([BINARY, "plan", *arguments], capture_output=True, text=True, cwd=self.directory.name,
                              timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code != 2 else done.stderr

    def plan(self, *arguments):
        return json.loads(self.flashmask(*arguments, "--json"))

    def test_bare_loads_give_the_keys_and_the_optimum(self):
        plan = self.plan("--loads", "10,9,9,7,7,6,5,3,1", "--ranks", "3")
        for key in KEYS:
            self.assertIn(key, plan)
        self.assertEqual((plan["peak"], plan["lower_bound"], plan["proven_optimal"]), (19, 19, True))
        sums = [0, 0, 0]
        for load, rank in zip([10, 9, 9, 7, 7, 6, 5, 3, 1], plan["assignment"]):
            sums[rank] += load
        self.assertEqual(sums, plan["loads"])
        self.assertEqual(plan["epsilon"], 0.01)

    def test_a_plan_of_a_mask_verifies_against_that_mask_and_no_other(self):
        arguments = [*MASK, "--chunk", "256", "--ranks", "8", "--nodes", "2"]
        self.flashmask(*arguments, "--json", "plan.json", "--svg", "plan.svg")
        xml.etree.ElementTree.parse(os.path.join(self.directory.name, "plan.svg"))
        self.assertIn("agree with the mask", self.flashmask("--verify", "plan.json", *MASK))
        self.assertIn("no mask was named", self.flashmask("--verify", "plan.json"))
        self.assertIn("WRONG", self.flashmask("--verify", "plan.json", "--workload", "equal:6", "--rows", "16384", code=1))
        self.assertIn("WRONG", self.flashmask("--verify", "plan.json", *MASK, "--costs", "1100,1000", code=1))
        # How tiles were counted is in the file: whoever has the mask alone can count them again.
        costs = ["--costs", "1500,1000", "--directions", "both", "--tile", "64x64"]
        self.flashmask(*arguments, *costs, "--json", "plan.json")
        self.assertIn("agree with the mask", self.flashmask("--verify", "plan.json", *MASK))
        self.assertIn("agree with the mask", self.flashmask("--verify", "plan.json", *MASK, *costs))
        self.assertIn("WRONG", self.flashmask("--verify", "plan.json", *MASK, "--costs", "1500,1000", code=1))
        self.change("plan.json", tile_work={"tile": [64, 64], "forward": {"calls": 1, "partial": 1500, "unmasked": 1000}})
        self.assertIn("WRONG  unit is tiles, but chunk 0 carries ", self.flashmask("--verify", "plan.json", *MASK, code=1))

    def test_a_changed_file_is_refused(self):
        self.flashmask(*MASK, "--json", "plan.json")
        path = os.path.join(self.directory.name, "plan.json")
        with open(path) as file:
            plan = json.load(file)
        plan["peak"] += 1
        with open(path, "w") as file:
            json.dump(plan, file)
        self.assertIn("peak", self.flashmask("--verify", "plan.json", code=2))

    def test_tables_name_every_kind_and_size(self):
        table = self.flashmask(*MASK, "--ranks", "4", "--nodes", "2", "--chunk", "256", "--compare")
        for kind in ("contiguous", "dual_chunk", "per_document_dual_chunk", "lpt", "hcc_ipo"):
            self.assertIn(kind, table)
        table = self.flashmask(*MASK, "--sweep", "--sweep-chunks", "512,1024", "--sweep-ranks", "2,4")
        self.assertEqual(len(table.strip().splitlines()), 5)

    def test_layers_units_speeds_and_directions_are_taken(self):
        layered = self.plan(*MASK, "--layers", "causal_document:2,sliding_window:3", "--unit", "cells")
        parts = [self.plan(*MASK, "--layers", name, "--unit", "cells") for name in ("causal_document", "sliding_window")]
        self.assertEqual(sum(layered["loads"]), 2 * sum(parts[0]["loads"]) + 3 * sum(parts[1]["loads"]))
        forward = self.plan(*MASK, "--costs", "1000,1000")
        both = self.plan(*MASK, "--costs", "1000,1000", "--directions", "both")
        self.assertGreater(sum(both["loads"]), 3 * sum(forward["loads"]))
        slow = self.plan("--loads", "4,4,4,4", "--ranks", "2", "--speeds", "100,50")
        self.assertEqual(slow["peak"], 16)

    def test_speeds_decide_by_rank_and_not_by_number(self):
        five = ["--loads", "10,10,10,10,10", "--ranks", "4", "--speeds"]
        for speeds in ("90,100,100,100", "100,100,100,90"):
            self.assertEqual(self.plan(*five, speeds)["peak"], 20)
        table = self.flashmask("--loads", "4,4,4,4", "--ranks", "2", "--speeds", "100,50").splitlines()
        rows = [line.split() for line in table if line[:1] in ("0", "1")]
        # Load 8 takes the slower rank 16, the peak, and the other half of it.
        self.assertEqual([(row[0], row[2], row[3]) for row in rows], [("0", "8", "50.0%"), ("1", "8", "100.0%")])

    def test_a_forged_kind_is_found(self):
        self.flashmask(*MASK, "--ranks", "4", "--chunk", "512", "--json", "plan.json")
        path = os.path.join(self.directory.name, "plan.json")
        with open(path) as file:
            plan = json.load(file)
        plan.update(kind="contiguous", method="layout", epsilon=0)
        del plan["digest"]
        with open(path, "w") as file:
            json.dump(plan, file)
        self.assertIn("WRONG  kind is contiguous, but chunk", self.flashmask("--verify", "plan.json", code=1))

    def change(self, name, **fields):
        """Rewrites members of a plan file; its digest goes, as a forger would leave it out."""
        path = os.path.join(self.directory.name, name)
        with open(path) as file:
            plan = json.load(file)
        plan.update(fields)
        for derived in ("digest", "gap", "imbalance"):
            plan.pop(derived, None)
        with open(path, "w") as file:
            json.dump(plan, file)

    def test_a_forged_certificate_is_not_plainly_ok(self):
        loads = ",".join(str(1000 + (i * i * 31) % 1009) for i in range(80))
        self.flashmask("--loads", loads, "--ranks", "10", "--steps", "1", "--json", "plan.json")
        with open(os.path.join(self.directory.name, "plan.json")) as file:
            peak = json.load(file)["peak"]
        self.change("plan.json", lower_bound=peak, proven_optimal=True, bound_by="search")
        said = self.flashmask("--verify", "plan.json", code=1)
        self.assertIn("WRONG  bound_by is search, but no complete search takes 80 chunks", said)
        self.change("plan.json", bound_by="average")
        self.assertIn("does not follow from the argument it names, average", self.flashmask("--verify", "plan.json", code=1))
        verdict = json.loads(self.flashmask("--verify", "plan.json", "--json", code=1))
        self.assertEqual((verdict["verdict"], len(verdict["findings"])), ("wrong", 1))

    def test_what_could_not_be_rechecked_is_said_in_words_json_and_exit_code(self):
        # 64 loads of many digits: between what is easily refuted and what is easily reached a search is too long.
        loads, x = [], 12345
        for _ in range(64):
            x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
            loads.append(str(10**9 + (x >> 33) % 10**9))
        self.flashmask("--loads", ",".join(loads), "--ranks", "16", "--proof-steps", "0", "--steps", "1", "--json", "plan.json")
        self.assertIn("ok: 64 chunks", self.flashmask("--verify", "plan.json"))
        peak = 5_943_205_607
        self.change("plan.json", lower_bound=peak, bound_by="search")
        said = self.flashmask("--verify", "plan.json", code=4)
        self.assertTrue(said.startswith("not all rechecked: "), said)
        self.assertIn(f"bound not rechecked: lower_bound = {peak}", said)
        verdict = json.loads(self.flashmask("--verify", "plan.json", "--json", code=4))
        self.assertEqual(verdict["verdict"], "not_rechecked")
        self.assertIn("bound not rechecked", verdict["not_rechecked"])

    def test_a_bound_by_residue_is_rechecked_where_the_file_names_the_lattice(self):
        loads = [1000 * load for load in (1207, 507, 1807, 2107, 907, 1107, 1607, 507, 1307, 107, 2307, 2038, 1407, 1507, 107, 1907)]
        self.flashmask("--loads", ",".join(map(str, loads)), "--ranks", "4", "--json", "plan.json")
        with open(os.path.join(self.directory.name, "plan.json")) as file:
            plan = json.load(file)
        self.assertEqual((plan["version"], plan["bound_by"]), (4, "residue"))
        self.assertIn("lower bound", self.flashmask("--verify", "plan.json"))
        self.change("plan.json", residue={"modulus": 77, "rest": 7})
        self.assertIn("WRONG  lower_bound", self.flashmask("--verify", "plan.json", code=1))
        del plan["residue"], plan["digest"]
        with open(os.path.join(self.directory.name, "plan.json"), "w") as file:
            json.dump({**plan, "version": 2}, file)
        said = self.flashmask("--verify", "plan.json", code=4)
        self.assertIn("is by residue, but the file does not name the lattice", said)

    def test_a_unit_that_the_file_contradicts_is_refused_by_the_key(self):
        self.flashmask("--loads", "5,4,3,2", "--ranks", "2", "--json", "bare.json")
        self.flashmask(*MASK, "--json", "tiles.json")
        self.flashmask(*MASK, "--unit", "cells", "--json", "cells.json")
        for name, unit, said in [("bare", "cells", "needs: none, but unit is cells"), ("bare", "tiles", "needs: none"),
                                 ("tiles", "bare", "needs: sets of 1 masks, but unit is bare"), ("cells", "bare", "needs: sets"),
                                 ("cells", "tiles", "tile_work: missing"), ("tiles", "cells", "tile_work says how tiles")]:
            self.change(f"{name}.json", unit=unit)
            self.assertIn(f"{name}.json: {said}", self.flashmask("--verify", f"{name}.json", code=2))

    def test_verify_takes_nothing_that_it_would_ignore(self):
        self.flashmask(*MASK, "--json", "plan.json")
        for arguments in (["--loads", "1,2"], ["--ranks", "4"], ["--chunk", "64"], ["--kind", "lpt"], ["--unit", "cells"],
                          ["--compare"], ["--svg", "x.svg"], ["--speeds", "1"], ["--epsilon", "0"],
                          ["--rows", "16384"], ["--tile", "64x64"], ["--dtype", "f32"]):
            self.assertIn(arguments[0], self.flashmask("--verify", "plan.json", *arguments, code=2))
        self.flashmask("--loads", "0,0", "--ranks", "2", "--json", "zero.json")
        self.assertIn("lower bound 0, as loads are not negative", self.flashmask("--verify", "zero.json"))
        self.assertIn("bare", self.flashmask("--verify", "zero.json", *MASK, code=2))

    def test_without_chunk_there_are_eight_a_rank_and_the_output_says_so(self):
        plan = self.plan("--mask", "causal", "--rows", "8192", "--ranks", "8")
        self.assertEqual((plan["chunk"], len(plan["assignment"])), (128, 64))
        sheet = self.flashmask("--mask", "causal", "--rows", "8192", "--ranks", "8")
        self.assertIn("64 of 128 tokens (about eight a rank, as --chunk is not given)", sheet)
        self.assertNotIn("not given", self.flashmask("--mask", "causal", "--rows", "8192", "--chunk", "128"))
        self.assertEqual(self.plan("--mask", "causal", "--rows", "100", "--ranks", "2")["chunk"], 64)

    def test_bad_input_is_named(self):
        for arguments, word in ((["--loads", "1,2", "--ranks", "0"], "ranks"), (["--loads", "1,-2"], "--loads: entry 2, -2, is not a whole number from 0 to 2^62 = 4611686018427387904"),
                                (["--loads", "1,2", "--ranks", "2", "--nodes", "3"], "--nodes 3: allowed are 1 to the number of ranks, 2"),
                                (["--loads", "4611686018427387904,1"], "--loads: entry 2, 1, is too much: all loads together may be 2^62"),
                                (["--loads", "4611686018427387900,1", "--ranks", "2", "--speeds", "1,2"],
                                 "--speeds 1,2: the loads (--loads) sum to 4611686018427387901, and that times fastest / slowest = 2 / 1"),
                                (["--mask", "causal", "--rows", "8192", "--costs", "1,4600000000000000000"],
                                 "--costs 1,4600000000000000000: load of chunk 3 exceeds the 64-bit range"),
                                (["--mask", "causal", "--rows", "8192", "--costs", "9000000000000000000,1"],
                                 "--costs 9000000000000000000,1: the load of chunk 0 exceeds 2^62"),
                                (["--mask", "causal", "--rows", "8192", "--costs", "4600000000000,4600000000000000"],
                                 "--costs 4600000000000,4600000000000000: the loads of the chunks sum to more than 2^62"),
                                (["--mask", "causal", "--rows", "8192", "--ranks", "2", "--costs", "1,46000000000000", "--speeds", "1,1000000"],
                                 "--speeds 1,1000000: the loads (--costs 1,46000000000000) sum to"),
                                (["--loads", "1,2", "--ranks", "2", "--speeds", "1"], "--speeds: 1 entries for --ranks 2"),
                                (["--loads", "1,-0"], "--loads: entry 2, -0, is not a whole number from 0 to"),
                                (["--loads", "007,1"], "--loads: entry 1, 007, is not a whole number from 0 to"),
                                (["--verify", "none.json"], "--verify none.json: cannot open it for reading"),
                                ([*MASK, "--calibration", "none.json"], "--calibration none.json: cannot open it for reading"),
                                ([*MASK, "--tile", "0128x128"], "--tile 0128x128: expected ROWSxCOLUMNS"),
                                (["--loads", "1,2", "--ranks", "2", "--speeds", "1,0"], "--speeds: entry 2, 0, is not a whole number from 1 to 1000000"),
                                (["--mask", "causal", "--rows", "64", "--columns", "32"], "the mask has 64 rows and 32 columns"),
                                ([*MASK, "--costs=-1,5"], "--costs: entry 1, -1, is not a whole number from 0 to"),
                                (["--mask", "causal", "--rows", "4096", "--kind", "per_document_dual_chunk"], "--workload"),
                                (["--mask", "causal", "--rows", "4096", "--sweep", "--kind", "per_document_dual_chunk"],
                                 "--kind per_document_dual_chunk: it needs the lengths of the documents"),
                                (["--loads", "1", "--kind", "magic"], "kind"), ([*MASK, "--tile", "12"], "--tile"),
                                (["--loads", "1", "--mask", "causal"], "--loads"), (["--verify", "none.json"], "none.json"),
                                ([*MASK, "--chunk", "0"], "chunk"), ([*MASK, "--nodes", "9"], "nodes"),
                                (["--loads", ""], "--loads \"\": its value is empty"),
                                (["--loads", "1,,2"], "--loads \"1,,2\": entry 2 is empty"),
                                (["--loads", "1,2,"], "entry 3 is empty"), (["--loads", "1,2.5"], "entry 2, 2.5, is not a whole number"),
                                (["--loads", "1,9223372036854775808"],
                                 "--loads: entry 2, 9223372036854775808, is not a whole number from 0 to 2^62 = 4611686018427387904; "
                                 "all loads together may be as much; use a coarser unit"),
                                (["--speeds", "99999999999999999999,1", "--loads", "1,2", "--ranks", "2"],
                                 "--speeds: entry 1, 99999999999999999999, is not a whole number from 1 to 1000000"),
                                (["--layers", "causal:2,x"], "--layers x: mask builder \"x\" is not known: expected one of full, causal"),
                                (["--layers", "causal,full:x"],
                                 "--layers causal,full:x: entry 2, full:x: the count behind the colon must be a whole number from 1 to 1000000"),
                                (["--layers", "causal,:3"], "--layers causal,:3: entry 2, :3: the mask's name is missing before the colon"),
                                (["--layers", "causal", "--mask", "full"], "--mask full: --layers causal names the masks; leave it out"),
                                (["--mask", "caussal"], "--mask caussal: mask builder \"caussal\" is not known: expected one of full"),
                                ([*MASK, "--epsilon", "0x1"], "--epsilon: 0x1 is not a decimal number from 0 to 1, such as 0.01"),
                                ([*MASK, "--epsilon", "1e-7"], "--epsilon: 1e-7 is no whole number of millionths"),
                                (["--loads", "1,2", "--chunk", "5"], "--chunk 5: --loads stands alone"),
                                (["--loads", "1,2", "--speeds", "1,,2"], "--speeds \"1,,2\": entry 2"),
                                ([*MASK, "--costs", "5"], "--costs 5: expected two numbers"),
                                ([*MASK, "--layers", "causal,,full"], "--layers \"causal,,full\": entry 2"),
                                ([*MASK, "--layers", "causal:2,full", "--window", "5"], "--window 5: mask causal has no use"),
                                ([*MASK, "--epsilon", "nan"], "--epsilon: nan is not a decimal number from 0 to 1"),
                                ([*MASK, "--epsilon", "inf"], "--epsilon: inf"), ([*MASK, "--epsilon", "-0.1"], "--epsilon"),
                                ([*MASK, "--search-seed", "99999999999999999999"], "99999999999999999999 is not a whole number"),
                                ([*MASK, "--steps", "1e3"], "--steps: 1e3"), ([*MASK, "--kind", "lpt", "--steps", "3"], "--steps 3"),
                                ([*MASK, "--unit", "cells", "--tile", "64x64"], "--tile 64x64: --unit cells"),
                                ([*MASK, "--compare", "--json"], "--json"), ([*MASK, "--sweep", "--ranks", "4"], "--ranks 4"),
                                ([*MASK, "--compare", "--sweep"], "--compare and --sweep"),
                                ([*MASK, "--sweep-ranks", "4"], "--sweep-ranks 4: it belongs to --sweep")):
            self.assertIn(word, self.flashmask(*arguments, code=2))


    def test_a_comparison_names_the_option_that_a_kind_misses(self):
        for arguments in (["--loads", "1,2", "--ranks", "2"], ["--mask", "causal", "--rows", "4096"]):
            self.assertIn("\nper_document_dual_chunk: left out: it needs the lengths of the documents, the same in every batch "
                          "row: name them with --workload, or take dual_chunk\n", self.flashmask(*arguments, "--compare"))
        self.assertIn("\nper_document_dual_chunk: left out: document 0 has 2048 tokens, not a multiple of",
                      self.flashmask("--workload", "equal:2", "--rows", "4096", "--ranks", "3", "--compare"))

    def test_a_sweep_refuses_what_is_out_of_range_and_says_what_it_leaves_out(self):
        mask = ["--mask", "causal", "--rows", "4096", "--sweep"]
        for option, value, most in [("--sweep-chunks", "0", "1073741824"), ("--sweep-chunks", "-5", "1073741824"),
                                    ("--sweep-ranks", "0", "65536"), ("--sweep-ranks", "2,70000", "65536")]:
            message = self.flashmask(*mask, f"{option}={value}", code=2)
            entry = value.split(",")
            self.assertIn(f"{option}: entry {len(entry)}, {entry[-1]}, is not a whole number from 1 to {most}", message)
        text = self.flashmask(*mask, "--sweep-chunks", "4096,512", "--sweep-ranks", "2", "--nodes", "1")
        self.assertIn("left out: chunk 4096 on 2 ranks: only 1 chunks", text)
        text = self.flashmask(*mask, "--sweep-chunks", "512", "--sweep-ranks", "2,4", "--nodes", "4")
        self.assertIn("left out: chunk 512 on 2 ranks: fewer ranks than 4 nodes", text)
        text = self.flashmask("--workload", "equal:2", "--rows", "4096", "--sweep", "--kind", "per_document_dual_chunk",
                              "--sweep-chunks", "512,1024", "--sweep-ranks", "2")
        self.assertIn("left out: chunk 1024 on 2 ranks: document 0 has 2048 tokens, not a multiple of", text)
        self.assertEqual(len([line for line in text.splitlines() if line.startswith("512 ")]), 1)

    def test_a_plan_is_not_written_over_by_its_verdict_nor_confirmed_by_a_mask_that_is_not_square(self):
        self.flashmask("--mask", "causal", "--rows", "1024", "--ranks", "4", "--chunk", "64", "--json", "p.json")
        with open(os.path.join(self.directory.name, "p.json"), encoding="utf-8") as file:
            before = file.read()
        message = self.flashmask("--verify", "p.json", "--json", "./p.json", code=2)
        self.assertIn("--json ./p.json would be written over the file of --verify", message)
        with open(os.path.join(self.directory.name, "p.json"), encoding="utf-8") as file:
            self.assertEqual(file.read(), before)
        for rows in "4096", "512", "0":
            text = self.flashmask("--verify", "p.json", "--mask", "causal", "--rows", rows, "--columns", "1024", code=1)
            self.assertIn("square", text)

    def test_bytes_beyond_64_bits_are_refused(self):
        message = self.flashmask("--rows", "1048576", "--workload", "equal:1", "--layers", "causal:1000000", "--chunk",
                                 "65536", "--ranks", "8", "--nodes", "8", "--kv-heads", "65536", "--head-dim", "65536",
                                 code=2)
        self.assertIn("2^63 bytes", message)


if __name__ == "__main__":
    unittest.main()
