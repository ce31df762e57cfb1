"""tools/record_tables.py: a figure of a document that the record does not have is found, whichever of the two was changed."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
TOOL = ROOT / "tools/record_tables.py"
sys.path[:0] = [str(TOOL.parent), str(ROOT / "bench")]
sys.dont_write_bytecode = True
import device_record  # noqa: E402
import peers_gpu  # noqa: E402
import record_tables  # noqa: E402

SHAPES = record_tables.SHAPES
OURS, PEERS = 2.0, {"peers": ("cudnn", 2.4), "flex": ("flex", 3.0)}  # ms of a forward


def timed(mask, shape, ms, factor):
    """One pass as bench/peers_gpu.py records it; sustained takes a quarter longer."""
    return {**peers_gpu.timed([ms * factor] * 9, mask, shape, factor),
            "sustained": peers_gpu.timed([ms * factor * 1.25] * 6, mask, shape, factor)}


def result(label, name):
    batch, rows, heads, kv_heads, dim = SHAPES[label]
    shape = peers_gpu.Shape(batch=batch, rows=rows, columns=rows, query_heads=heads, kv_heads=kv_heads, head_dim=dim)
    density = {"element": 0.25, "tile": 0.5}
    mask = {"name": name, "visible_cells": rows * rows // 4, "density": density}
    if label.startswith("table"):
        mask = {**mask, "name": f"{name} of pack:{rows}:0", "builder": name}
    entry = {"mask": mask, "shape": {field: getattr(shape, field) for field, _ in shape._fields_},
             "sm90": {"forward_tile": [192, 80], "backward_tile": [64, 256]}}
    for which, factor in peers_gpu.PASSES.items():
        peer, ms = PEERS.get(label.split()[0], (None, 0))
        peers = [{"name": peer, **timed(mask, shape, ms, factor)}] if peer else []
        entry[which] = {**timed(mask, shape, OURS, factor), "peers": peers}
    return entry


class RecordTables(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name).resolve()
        self.write("bench/peers_h200.json", (ROOT / "bench/peers_h200.json").read_text())
        for document, names in record_tables.BLOCKS.items():
            self.write(document, "".join(f"Before.\n<!-- tables: {n} -->\n<!-- end of {n} -->\nAfter.\n" for n in names))
        self.results = {(label, mask): result(label, mask) for label in SHAPES
                        for mask in {"table": peers_gpu.MASKS, "peers": record_tables.CUDNN_MASKS,
                                     "flex": record_tables.FLEX_MASKS}[label.split()[0]]}
        self.save()

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def write_bytes(self, name, text):
        (self.root / name).write_bytes(text.encode())

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def save(self):
        benchmarks = [{"program": label, "results": [entry for key, entry in self.results.items() if key[0] == label]}
                      for label in dict.fromkeys(label for label, _ in self.results)]
        self.write("tests/device/record.json", json.dumps({**device_record.FORMAT, "kernel_hash": "", "gpu": {}, "sources": {},
                                                           "tests": [], "benchmarks": benchmarks}))

    def call(self, mode):
        done = subprocess.run([sys.executable, TOOL, mode, "--root", self.root], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def written(self, document):
        self.save()
        self.assertEqual(self.call("--write")[0], 0)
        return self.read(document)

    def test_what_was_written_passes_and_the_rest_of_a_document_stays(self):
        self.assertEqual(self.call("--check")[0], 1)
        self.assertEqual(self.read("README.md"), "".join(
            f"Before.\n<!-- tables: {n} -->\n<!-- end of {n} -->\nAfter.\n" for n in ("forward", "factors")))
        text = self.written("README.md")
        self.assertEqual(self.call("--check")[0], 0)
        self.assertEqual((text.count("Before.\n<!-- tables"), text.count("-->\nAfter.\n")), (2, 2))
        self.assertEqual(self.written("README.md"), text)

    def test_one_changed_digit_of_a_table_is_found_and_named(self):
        for document in record_tables.BLOCKS:
            text = self.written(document)
            number, line = next((i, line) for i, line in enumerate(text.splitlines(), 1) if line.startswith("| full |"))
            wrong = line.replace("5", "6", 1) if "5" in line else line[:-3] + "9 |"
            self.write(document, text.replace(line, wrong))
            code, output = self.call("--check")
            self.assertEqual(code, 1)
            self.assertIn(f"{document}, block '", output)
            self.assertIn(f"line {number} differs from the record\n  document: {wrong}\n  record:   {line}", output)

    def test_one_changed_figure_of_the_record_is_found(self):
        self.written("README.md")
        for label in SHAPES:
            member = self.results[label, "causal"]["backward"]["sustained"]["tflops"]
            member["tile"] *= 1.1
            self.save()
            self.assertEqual(self.call("--check")[0], 1, label)
            member["tile"] /= 1.1
        self.save()
        self.assertEqual(self.call("--check")[0], 0)

    def test_an_unknown_block_a_missing_end_and_a_missing_block_are_errors(self):
        text = self.written("docs/forward.md")
        for wrong, words in ((text.replace("tables: d64", "tables: d65"), "block 'd65': unknown; known there are forward d128,"),
                             (text.replace("<!-- end of d64 -->\n", ""), "block 'd64': its line <!-- end of d64 --> is missing"),
                             (text.replace("end of forward cudnn", "end of d64"), "block 'forward cudnn': its line <!-- end of forward"),
                             (text.replace("<!-- tables: d64 -->\n", ""), "block 'd64': its line <!-- tables: d64 --> is missing")):
            self.write("docs/forward.md", wrong)
            for mode in ("--check", "--write"):
                code, output = self.call(mode)
                self.assertEqual(code, 2)
                self.assertIn("docs/forward.md, " + words, output)
            self.assertEqual(self.read("docs/forward.md"), wrong)

    def test_a_missing_benchmark_mask_or_peer_is_an_error_and_other_blocks_are_made(self):
        whole, readme = self.written("docs/backward.md"), self.read("README.md")

        def check(words, block="docs/backward.md, block 'backward cudnn'"):
            self.save()
            self.write("README.md", readme.replace("| full |", "| fool |"))
            code, output = self.call("--write")
            self.assertEqual(code, 2)
            self.assertIn(f"{block}: {words}", output)
            self.assertEqual((self.read("docs/backward.md"), self.read("README.md")), (whole, readme))
        entry = self.results["peers 64:1 8192", "causal"]
        entry["backward"]["peers"][0] = {"name": "cudnn", "error": "RuntimeError: none"}
        check("the record has no figure of cudnn beside causal of shape")
        del entry["backward"]
        check("a figure of tests/device/record.json or bench/peers_h200.json is malformed (KeyError: 'backward')")
        del self.results["peers 64:1 8192", "causal"]
        check("the record's benchmark 'peers 64:1 8192' has no causal")
        del self.results["peers 64:1 8192", "full"]
        check("the record has no benchmark 'peers 64:1 8192'")
        del self.results["table d64 8192", "causal"]
        check("the record's benchmark 'table d64 8192' has no causal", "docs/forward.md, block 'd64'")

    def test_no_record_and_no_document_are_errors(self):
        (self.root / "docs/backward.md").unlink()
        self.assertEqual(self.call("--check")[0], 2)
        self.write("tests/device/record.json", "{")
        code, output = self.call("--check")
        self.assertEqual(code, 2)
        self.assertIn("cannot be read as JSON", output)

    def test_factors_are_of_unrounded_figures(self):
        own = self.results["peers d128 8192", "full"]["forward"]
        own["sustained"]["tflops"]["tile"], own["peers"][0]["sustained"]["tflops"]["tile"] = 100.4, 99.6  # 1.008, rounded 1.00
        self.results["table d128 8192", "share_question"]["forward"]["tflops"]["tile"] = 685.6  # FM3 417.27; rounded 1.65
        text = self.written("docs/forward.md")
        self.assertIn("| 100 : 100 (**1.01**) |", text)
        self.assertIn("| share_question | 2.000 686 / 275 (1.64) 440 |", text)

    def test_masks_that_fm3_did_not_publish_have_no_factor(self):
        self.assertIn("\n| document | 2.000 550 / 275 440 | 5.000 550 / 275 440 |\n", self.written("docs/forward.md"))
        self.results["table d128 8192", "full"]["shape"]["batch"] = 3
        self.save()
        code, output = self.call("--check")
        self.assertEqual(code, 2)
        self.assertIn("block 'backward d128': the record's benchmark 'table d128 8192' has full of shape (3, 8192, 16, 16, 128), not (4,", output)

    def test_by_time_is_the_ratio_of_times(self):
        for mask in peers_gpu.MASKS:
            for which, short in (("forward", "fwd"), ("backward", "bwd")):
                for row in json.loads(self.read("bench/peers_h200.json")):
                    label = f"table d128 {row['S']}"
                    if row["peer"] == "flashmask3" and row["mask"] == mask and SHAPES.get(label) == tuple(
                            row[name] for name in ("B", "S", "Hq", "Hk", "D")):
                        self.results[label, mask][which]["time_ms"]["median"] = row[f"{short}_ms"] / 1.234
        text = self.written("docs/forward.md")
        self.assertIn("the rule counts 2048 tiles of global windows at 8192, FM3's mask 674 (1374 are hidden whole", text)
        self.assertIn("so its factors are 1.23 / 1.23 / 1.23, and the\ngeometric means 1.23 / 1.23 / 1.23 (1.234, 1.234, 1.234).", text)
        self.assertIn("by time, 8192 / 32768 / 131072 | 1.23 / 1.23 / 1.23 | 1.23 / 1.23 / 1.23 |", self.read("README.md"))

    def test_every_figure_is_in_its_place(self):
        """Figures that all differ, and what the documents should make of them, by other means."""
        for n, entry in enumerate(self.results.values()):
            for m, which in enumerate(("forward", "backward")):
                for k, own in enumerate([entry[which], *entry[which]["peers"]]):
                    for protocol, of in enumerate((own, own["sustained"])):
                        wobble = 1 + (37 * n + 17 * m + 11 * k + 5 * protocol) % 101 / 211
                        of["time_ms"]["median"] *= wobble * (1, 11, 110)[n % 3]
                        of["tflops"] = {unit: x / wobble for unit, x in of["tflops"].items()}
        forward, backward, readme = self.written("docs/forward.md"), self.read("docs/backward.md"), self.read("README.md")
        published = {(row["peer"], row["mask"], row["S"], row["Hq"], row["Hk"], row["D"]): row
                     for row in json.loads(self.read("bench/peers_h200.json"))}

        def figure(label, mask, which):
            _, rows, heads, kv_heads, dim = SHAPES[label]
            fm3, fa3 = (published.get((peer, mask, rows, heads, kv_heads, dim)) for peer in ("flashmask3", "fa3"))
            return self.results[label, mask][which], fm3, fa3, {"forward": "fwd", "backward": "bwd"}[which]

        def ratio(label, mask, which):
            own = self.results[label, mask][which]
            return own["sustained"]["tflops"]["tile"] / own["peers"][0]["sustained"]["tflops"]["tile"]

        def mean(values):
            return math.prod(values) ** (1 / len(values))
        tables = ["table d128 8192", "table d128 32768", "table d128 131072"]
        by_time, fa3s, peers, grouped, bursts, flex = [], [], {}, [], [], []
        for which in ("forward", "backward"):
            every = [[figure(label, mask, which) for mask in peers_gpu.MASKS] for label in tables]
            by_time.append(" / ".join(f"{mean([fm3[s + '_ms'] / own['time_ms']['median'] for own, fm3, _, s in column]):.2f}"
                                      for column in every))
            factors = [own["tflops"]["tile"] / fa3[s + "_tf"] for column in every for own, _, fa3, s in column if fa3]
            fa3s.append(f"{min(factors):.2f} to {max(factors):.2f}")
            for rows in (8192, 32768):
                peers.setdefault(rows, []).append(" / ".join(f"{ratio(f'peers d128 {rows}', m, which):.2f}" for m in ("full", "causal")))
            pairs = [(label, m) for label in ("peers 64:8 8192", "peers 64:1 8192") for m in ("full", "causal")]
            factors = [ratio(*pair, which) for pair in pairs]
            grouped.append(f"{min(factors):.2f} to {max(factors):.2f}")
            factors = [own["tflops"]["tile"] / fm3[s + "_tf"] for own, fm3, _, s in (figure(*pair, which) for pair in pairs)]
            bursts.append(f"{min(factors):.2f} to {max(factors):.2f}")
            flex.append(" / ".join(f"{ratio('flex d128 8192', m, which):.2f}" for m in ("full", "causal", "causal_document")))
        for words, cells in (("FM3, geometric mean of twelve masks by time, 8192 / 32768 / 131072", by_time),
                             ("FA3, which has five of the masks, at these lengths", fa3s),
                             ("cuDNN in the same process, sustained, 8192, full / causal", peers[8192]),
                             ("the same at 32768", peers[32768]),
                             ("cuDNN likewise, grouped heads (64:8, 64:1), 8192, full and causal", grouped),
                             ("FM3 there, in bursts", bursts),
                             ("FlexAttention in the same process, sustained, 8192, full / causal / causal_document", flex)):
            self.assertIn(f"\n| {words} | {cells[0]} | {cells[1]} |\n", readme)
        for text, which in ((forward, "forward"), (backward, "backward")):
            for mask in peers_gpu.MASKS:
                cells, fm3s, fa3s = [], [], []
                for label in tables:
                    own, fm3, fa3, s = figure(label, mask, which)
                    ms = own["time_ms"]["median"]
                    cells.append(f"{ms:.{3 if ms < 10 else 2 if ms < 100 else 1}f} {own['tflops']['tile']:.0f} / {own['tflops']['element']:.0f} "
                                 f"({own['tflops']['tile'] / fm3[s + '_tf']:.2f}) {own['sustained']['tflops']['tile']:.0f}")
                    fm3s.append(f"{fm3[s + '_tf']:.0f}")
                    fa3s.append(f"{fa3[s + '_tf']:.0f}" if fa3 else "")
                line = f"| {mask} | {' | '.join(cells)} | {' / '.join(fm3s)} | {' / '.join(fa3s) if all(fa3s) else '-'} |"
                self.assertIn(f"\n{line}\n", text)

    def test_spreads_are_those_of_the_launches(self):
        for mask, low, high in (("causal", 1.9, 2.4), ("full", 2.0, 2.1)):
            self.results["table d128 8192", mask]["forward"]["time_ms"].update(min=low, max=high)
        self.results["table d128 32768", "full"]["forward"]["sustained"]["time_ms"].update(min=2.4, max=2.5, median=2.5)
        self.assertIn("Spread, (max - min) / median: bursts 0.0% in the median figure and at most 25% (the clock may fall inside one), "
                      "sustained 0.0% and 4%.\n", self.written("docs/forward.md"))

    def test_a_failed_or_doubled_benchmark_is_an_error(self):
        self.written("README.md")
        record = json.loads(self.read("tests/device/record.json"))
        for more, words in (([{"program": "table d128 8192", "error": "ended with 1"}], "'table d128 8192' ended with 1"),
                            ([record["benchmarks"][0]], "'table d128 8192' has full twice")):
            self.write("tests/device/record.json", json.dumps({**record, "benchmarks": record["benchmarks"] + more}))
            code, output = self.call("--check")
            self.assertEqual(code, 2)
            self.assertIn(f"README.md, block 'forward': the record's benchmark {words}", output)

    def test_lines_that_are_almost_those_of_a_block_are_errors(self):
        text = self.written("README.md")
        for wrong in (text.replace("<!-- tables: forward -->", "<!-- tables: forward --> "), text + "<!--tables: forward -->\n",
                      text + "<!-- end of forward -->\n", text.replace("\n", "\r\n")):
            self.write_bytes("README.md", wrong)
            self.assertEqual(self.call("--check")[0], 2, wrong)
        self.write_bytes("README.md", text)
        self.write("docs/cpu.md", "<!-- tables: forward -->\n")
        code, output = self.call("--check")
        self.assertEqual((code, output), (2, "record_tables: docs/cpu.md, line 1: no tables are made there\n"))

    def test_what_is_not_in_a_block_stays_byte_for_byte(self):
        text = self.read("README.md").replace("Before.", "Before.\x0cand\u2028after", 1).rstrip("\n")
        self.write_bytes("README.md", text)
        self.assertEqual(self.written("README.md").replace("\n", "").count("Before.\x0cand\u2028after"), 1)
        self.assertTrue(self.read("README.md").endswith("After."))

    def test_narrow_tiles_are_marked_and_masks_without_pairs_are_named(self):
        self.assertIn("\nPairs everywhere.\n", self.written("docs/backward.md"))
        for length, mask in ((8192, "causal"), (8192, "document"), (131072, "full")):
            self.results[f"table d128 {length}", mask]["sm90"] = {"forward_tile": [192, 64], "backward_tile": [64, 128]}
        self.assertIn("\nPairs but for causal and document at 8192 and full at 131072.\n", self.written("docs/backward.md"))
        lines = [line.split("|") for line in self.read("docs/forward.md").splitlines()[2:] if line.startswith("| ")]
        marked = [(cells[1].strip(), at) for cells in lines for at, text in enumerate(cells) if "*" in text and "**" not in text]
        self.assertEqual(marked, [("full", 4), ("causal", 2), ("document", 2)])
        self.assertNotIn("2.000*", self.read("docs/backward.md"))

    def test_the_benchmarks_of_the_tables_are_recorded(self):
        recorded = {label: arguments for label, _, arguments in device_record.BENCHMARKS}
        for label, (batch, rows, heads, kv_heads, dim) in SHAPES.items():
            self.assertIn(label, recorded)
            if not label.startswith("table"):
                o, masks = peers_gpu.parse_arguments(recorded[label]), {key[1]: None for key in self.results if key[0] == label}
                self.assertEqual((o.rows, o.head_dim, o.mask), ([rows], dim, list(masks)))
                self.assertIn(PEERS[label.split()[0]][0], o.peers)
                self.assertEqual(o.heads or [16], [heads, kv_heads] if heads != kv_heads else [heads])
                self.assertEqual(o.batch or 32768 // rows, batch)


if __name__ == "__main__":
    unittest.main()
