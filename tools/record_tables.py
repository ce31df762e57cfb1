#!/usr/bin/env python3
"""Makes the measured tables of the documents from tests/device/record.json and the peers' bench/peers_h200.json.

  record_tables.py --write [--root DIR]      renew the blocks in README.md, docs/forward.md and docs/backward.md
  record_tables.py --check [--root DIR]      compare them with the record

A block stands between the lines <!-- tables: NAME --> and <!-- end of NAME -->. Exit code 1: a block says something else
than the record, 2: a block, or a figure that it needs, is missing or unknown; the other blocks are written or compared all
the same.

A factor is the ratio of two unrounded figures: of TFLOP/s in the tile convention, or of times where it says "by time".
"""
import argparse
import functools
import itertools
import json
import pathlib
import re
import statistics
import sys

sys.dont_write_bytecode = True
from device_record import RECORD, read_record  # noqa: E402

PEERS = pathlib.Path("bench/peers_h200.json")
LENGTHS = (8192, 32768, 131072)
FIVE_MASKS = ["full", "causal", "sliding_window", "causal_document", "share_question"]
CUDNN_MASKS = ["full", "causal"]
SHAPES = {  # batch, rows, query heads, KV heads, head_dim
    "table d128 8192": (4, 8192, 16, 16, 128), "table d128 32768": (1, 32768, 16, 16, 128),
    "table d128 131072": (1, 131072, 8, 8, 128), "table d64 8192": (4, 8192, 32, 32, 64),
    "peers d128 8192": (4, 8192, 16, 16, 128), "peers d128 32768": (1, 32768, 16, 16, 128),
    "peers d64 8192": (4, 8192, 32, 32, 64), "peers 64:8 8192": (2, 8192, 64, 8, 128),
    "peers 64:1 8192": (2, 8192, 64, 1, 128), "flex d128 8192": (4, 8192, 16, 16, 128)}
CUDNN_SHAPES = {"peers d128 8192": "8192, 16 heads", "peers d128 32768": "32768, 16 heads",
                "peers d64 8192": "8192, 32 heads, `--head-dim 64`", "peers 64:8 8192": "8192, `--batch 2 --heads 64:8`",
                "peers 64:1 8192": "8192, `--batch 2 --heads 64:1`"}
FLEX_MASKS, FLEX = ["full", "causal", "causal_document"], "flex d128 8192"
GROUPED = ("peers 64:8 8192", "peers 64:1 8192")
NARROW_TILE, PAIRS_TILE = [192, 64], [64, 256]
BEGIN, MARK = re.compile(r"<!-- tables: (\S.*) -->"), re.compile(r"<!-- (tables:|end of) \S.* -->")
ALMOST = re.compile(r"<!--\s*(tables|end of)\b")
MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)


class Missing(Exception):
    """A sentence about what a block or its figures lack."""


# ---- figures ----

class Published:
    """One pass of one row of the peers' table."""
    def __init__(self, row, which):
        short = {"forward": "fwd", "backward": "bwd"}[which]
        self.ms, self.tile, self.density = row[f"{short}_ms"], row[f"{short}_tf"], row.get("tile_density")


class Pass:
    """One pass of one result of the record, with what peers did on the same mask and shape."""
    def __init__(self, result, which, published):
        own = result[which]
        self.mask, self.shape, self.density = mask_of(result), result["shape"], result["mask"]["density"]["tile"]
        self.ms, self.tile, self.element = own["time_ms"]["median"], own["tflops"]["tile"], own["tflops"]["element"]
        self.sustained = own["sustained"]["tflops"]["tile"]
        self.spreads = [(t["max"] - t["min"]) / t["median"] for t in (own["time_ms"], own["sustained"]["time_ms"])]
        self.tile_shape, self.beside = result["sm90"][f"{which}_tile"], own["peers"]
        rows = (published.get(key_of(peer, self.mask, self.shape)) for peer in ("flashmask3", "fa3"))
        self.fm3_if_any, self.fa3 = (row and Published(row, which) for row in rows)

    def fm3(self):
        if self.fm3_if_any:
            return self.fm3_if_any
        raise Missing(f"{PEERS} has no FM3 for {self.mask} of shape {self.shape}")

    def peer(self, name):
        """TFLOP/s of a peer in the same process: burst, sustained."""
        for peer in self.beside:
            if peer["name"] == name and "error" not in peer:
                return peer["tflops"]["tile"], peer["sustained"]["tflops"]["tile"]
        raise Missing(f"the record has no figure of {name} beside {self.mask} of shape {self.shape}")


def mask_of(result):
    return result["mask"].get("builder", result["mask"]["name"])


def shape_key(shape):
    return tuple(shape[name] for name in ("batch", "rows", "query_heads", "kv_heads", "head_dim"))


def key_of(peer, mask, shape):
    return (peer, mask, *shape_key(shape))


class Figures:
    """The record and the peers' table. `masks` are those of FM3, in the order of the table."""
    def __init__(self, root):
        self.benchmarks = read_record(root / RECORD)["benchmarks"]
        rows = json.loads((root / PEERS).read_text())
        self.published = {tuple(row[name] for name in ("peer", "mask", "B", "S", "Hq", "Hk", "D")): row for row in rows}
        self.masks = list(dict.fromkeys(row["mask"] for row in rows if row["peer"] == "flashmask3"))

    def passes(self, label, which, masks):
        """The passes of a benchmark, one a mask."""
        entries = [entry for entry in self.benchmarks if entry["program"] == label]
        if not entries:
            raise Missing(f"the record has no benchmark '{label}'")
        for entry in entries:
            if "error" in entry:
                raise Missing(f"the record's benchmark '{label}' {entry['error']}")
        found = {}
        for result in itertools.chain.from_iterable(entry["results"] for entry in entries):
            if mask_of(result) in found:
                raise Missing(f"the record's benchmark '{label}' has {mask_of(result)} twice")
            found[mask_of(result)] = result
        absent = [mask for mask in masks if mask not in found]
        if absent:
            raise Missing(f"the record's benchmark '{label}' has no {', '.join(absent)}")
        passes = [Pass(found[mask], which, self.published) for mask in masks]
        for p in passes:
            if shape_key(p.shape) != SHAPES[label]:
                raise Missing(f"the record's benchmark '{label}' has {p.mask} of shape {shape_key(p.shape)}, not {SHAPES[label]}")
        return passes

    def d128(self, which):
        """The passes of every mask, one list a length."""
        return [self.passes(f"table d128 {rows}", which, self.masks) for rows in LENGTHS]


# ---- text ----

def row(*cells):
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def heading(*cells):
    return [row(*cells), "|" + "---|" * len(cells)]


def slashes(values, form=".2f"):
    return " / ".join(f"{value:{form}}" for value in values)


def in_turn(first, second):
    return [cell for pair in zip(first, second) for cell in pair]


def listed(words):
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def lowest_to_highest(values):
    return f"{min(values):.2f} to {max(values):.2f}"


def shape_words(p, batch="B"):
    return f"{p.shape['rows']} ({batch}{p.shape['batch']}, {p.shape['query_heads']} heads)"


def geo_mean(passes, value):
    return statistics.geometric_mean(value(p) for p in passes)


def own_tile(p):
    return p.tile


def fm3_tile(p):
    return p.fm3().tile


def by_time(p):
    return p.fm3().ms / p.ms


def over_fm3(p):
    return p.tile / p.fm3().tile


def over_cudnn(p):
    return p.sustained / p.peer("cudnn")[1]


def over_flex(p):
    return p.sustained / p.peer("flex")[1]


def cell(p):
    """ms, TFLOP/s tile / element, the factor over FM3 if it has the mask, sustained TFLOP/s."""
    digits = 3 if p.ms < 10 else 2 if p.ms < 100 else 1
    mark = "*" if p.tile_shape == NARROW_TILE else ""
    factor = f" ({over_fm3(p):.2f})" if p.fm3_if_any else ""
    return f"{p.ms:.{digits}f}{mark} {p.tile:.0f} / {p.element:.0f}{factor} {p.sustained:.0f}"


def versus(ours, theirs, mark=""):
    return f"{ours:.0f} : {theirs:.0f} ({mark}{ours / theirs:.2f}{mark})"


def beside(p, name, mark=""):
    """Ours and a peer's in the same process: burst, sustained."""
    burst, sustained = p.peer(name)
    return versus(p.tile, burst), versus(p.sustained, sustained, mark)


# ---- blocks: each returns its lines ----

def readme_forward(figures):
    columns = figures.d128("forward")
    lines = heading("mask", *in_turn([shape_words(column[0], "B ") for column in columns], ["FM3"] * len(columns)))
    for passes in zip(*columns):
        if passes[0].mask in FIVE_MASKS:
            ours, fm3 = ([f"{value(p):.0f}" for p in passes] for value in (own_tile, fm3_tile))
            lines.append(row(passes[0].mask, *in_turn(ours, fm3)))
    ours = [f"{geo_mean(column, own_tile):.0f} ({geo_mean(column, by_time):.2f}×)" for column in columns]
    fm3 = [f"{geo_mean(column, fm3_tile):.0f}" for column in columns]
    return [*lines, row("geometric mean of twelve masks, factor by time", *in_turn(ours, fm3))]


def readme_factors(figures):
    def line(words, cell_of):
        return row(words, cell_of("forward"), cell_of("backward"))

    def fm3(which):
        return slashes(geo_mean(column, by_time) for column in figures.d128(which))

    def fa3(which):
        return lowest_to_highest([p.tile / p.fa3.tile for column in figures.d128(which) for p in column if p.fa3])

    def cudnn(rows):
        return lambda which: slashes(map(over_cudnn, figures.passes(f"peers d128 {rows}", which, CUDNN_MASKS)))

    def grouped(factor):
        return lambda which: lowest_to_highest([factor(p) for label in GROUPED
                                                for p in figures.passes(label, which, CUDNN_MASKS)])
    return [*heading("factor over", "forward", "backward"),
            line(f"FM3, geometric mean of twelve masks by time, {slashes(LENGTHS, 'd')}", fm3),
            line("FA3, which has five of the masks, at these lengths", fa3),
            line("cuDNN in the same process, sustained, 8192, full / causal", cudnn(8192)),
            line("the same at 32768", cudnn(32768)),
            line("cuDNN likewise, grouped heads (64:8, 64:1), 8192, full and causal", grouped(over_cudnn)),
            line("FM3 there, in bursts", grouped(over_fm3)),
            line("FlexAttention in the same process, sustained, 8192, full / causal / causal_document",
                 lambda which: slashes(map(over_flex, figures.passes(FLEX, which, FLEX_MASKS))))]


def d128_table(columns):
    lines = heading("mask", *(shape_words(column[0]) for column in columns), "FM3 8K / 32K / 131K", "FA3")
    for passes in zip(*columns):
        fa3 = slashes((p.fa3.tile for p in passes), ".0f") if all(p.fa3 for p in passes) else "-"
        lines.append(row(passes[0].mask, *map(cell, passes), slashes(map(fm3_tile, passes), ".0f"), fa3))
    ours, fm3 = ([geo_mean(column, value) for column in columns] for value in (own_tile, fm3_tile))
    means = [f"**{a:.0f} ({a / b:.2f})**" for a, b in zip(ours, fm3)]
    return [*lines, row("**geo-mean**", *means, slashes(fm3, ".0f"), "")]


def factors_by_time(columns):
    """Of global windows, of all masks, of all masks with a digit more."""
    windows = [by_time(p) for column in columns for p in column if p.mask == "global_sliding_window"]
    means = [geo_mean(column, by_time) for column in columns]
    return slashes(windows), slashes(means), ", ".join(f"{mean:.3f}" for mean in means)


def spread_sentence(columns):
    """What stands for spread in docs/bench-schema.md, of a table's bursts and sustained figures."""
    burst, sustained = zip(*(p.spreads for column in columns for p in column))
    return (f"Spread, (max - min) / median: bursts {statistics.median(burst):.1%} in the median figure and at most {max(burst):.0%} (the clock may fall "
            f"inside one), sustained {statistics.median(sustained):.1%} and {max(sustained):.0%}.")


def forward_d128(figures):
    columns = figures.d128("forward")
    window = next(p for p in columns[0] if p.mask == "global_sliding_window")
    ours, theirs = (round(density * (window.shape["rows"] / 128) ** 2) for density in (window.density, window.fm3().density))
    windows, means, exact = factors_by_time(columns)
    return [*d128_table(columns), "",
            f"By time instead of TFLOP/s one mask differs: the rule counts {ours} tiles of global windows at {LENGTHS[0]}, "
            f"FM3's mask {theirs} ({ours - theirs} are hidden whole without the rule seeing it), so its factors are {windows}, and the",
            f"geometric means {means} ({exact}).", spread_sentence(columns)]


def backward_d128(figures):
    columns = figures.d128("backward")
    windows, means, exact = factors_by_time(columns)
    return [*d128_table(columns), "", pairs_sentence(columns),
            f"By time instead of TFLOP/s (docs/forward.md says why) the factors of global windows are {windows}, and the geometric means",
            f"{means} ({exact}).", spread_sentence(columns)]


def pairs_sentence(columns):
    """Which masks do not take pairs."""
    parts = []
    for rows, column in zip(LENGTHS, columns):
        single = [p.mask for p in column if p.tile_shape != PAIRS_TILE]
        if single:
            parts.append(f"{listed(single)} at {rows}")
    return f"Pairs but for {listed(parts)}." if parts else "Pairs everywhere."


def cudnn_table(figures, which):
    lines = heading("shape", *(f"{mask}, {protocol}" for protocol in ("burst", "sustained") for mask in CUDNN_MASKS))
    for label, words in CUDNN_SHAPES.items():
        passes = figures.passes(label, which, CUDNN_MASKS)
        bursts, sustained = zip(*(beside(p, "cudnn", "**") for p in passes))
        lines.append(row(words, *bursts, *sustained))
    return lines


def flex_table(figures):
    columns = [figures.passes(FLEX, which, FLEX_MASKS) for which in ("forward", "backward")]
    lines = heading("mask", *(f"{which}, {protocol}" for which in ("forward", "backward") for protocol in ("burst", "sustained")))
    return lines + [row(passes[0].mask, *(text for p in passes for text in beside(p, "flex"))) for passes in zip(*columns)]


def d64_table(figures):
    columns = [figures.passes("table d64 8192", which, figures.masks) for which in ("forward", "backward")]
    lines = heading("mask", "forward", "backward") + [row(passes[0].mask, *map(cell, passes)) for passes in zip(*columns)]
    return [*lines, row("**geo-mean**", *(f"**{geo_mean(column, own_tile):.0f}**" for column in columns))]


BLOCKS = {
    "README.md": {"forward": readme_forward, "factors": readme_factors},
    "docs/forward.md": {"forward d128": forward_d128, "forward cudnn": functools.partial(cudnn_table, which="forward"),
                        "flex": flex_table, "d64": d64_table},
    "docs/backward.md": {"backward d128": backward_d128, "backward cudnn": functools.partial(cudnn_table, which="backward")},
}


# ---- documents ----

def blocks_in(document, lines):
    """(name, index of its first line, index of its end) of each block in order; all that the document should have are there."""
    found = []
    for begin, line in enumerate(lines):
        if ALMOST.search(line) and not MARK.fullmatch(line):
            raise Missing(f"{document}, line {begin + 1}: {line!r} is almost a line of a block; write it exactly, alone on its line")
        if not (mark := BEGIN.fullmatch(line)):
            continue
        name = mark[1]
        if name not in BLOCKS[document]:
            raise Missing(f"{document}, block '{name}': unknown; known there are {', '.join(BLOCKS[document])}")
        end = next((i for i in range(begin + 1, len(lines)) if MARK.fullmatch(lines[i])), begin)
        if lines[end] != f"<!-- end of {name} -->":
            raise Missing(f"{document}, block '{name}': its line <!-- end of {name} --> is missing")
        found.append((name, begin + 1, end))
    absent = [name for name in BLOCKS[document] if name not in (block[0] for block in found)]
    if absent:
        raise Missing(f"{document}, block '{absent[0]}': its line <!-- tables: {absent[0]} --> is missing")
    ends = sum(line.startswith("<!-- end of ") for line in lines)
    if ends != len(found):
        raise Missing(f"{document} has {len(found)} blocks and {ends} ends of blocks")
    return found


def difference(old, new, first):
    """A sentence about the first line that differs, of lines that start at index `first` of their document."""
    both = list(itertools.zip_longest(old, new, fillvalue="(no line)"))
    at = next(i for i, (a, b) in enumerate(both) if a != b)
    return f"line {first + at + 1} differs from the record\n  document: {both[at][0]}\n  record:   {both[at][1]}"


def renewed(document, lines, figures, differences, errors):
    """The document's lines with every block as the record has it; a block that cannot be made stays as it is."""
    out, done = [], 0
    for name, begin, end in blocks_in(document, lines):
        block = made = lines[begin:end]
        try:
            made = BLOCKS[document][name](figures)
        except Missing as error:
            errors.append(f"{document}, block '{name}': {error}")
        except MALFORMED as error:
            errors.append(f"{document}, block '{name}': a figure of {RECORD} or {PEERS} is malformed ({type(error).__name__}: {error})")
        if made != block:
            differences.append(f"{document}, block '{name}': {difference(block, made, begin)}")
        out += lines[done:begin] + made
        done = end
    return out + lines[done:]


def renew(root, document, figures, write, differences, errors):
    """Adds what differs in a document and what is missing to the lists; writes the document if asked to."""
    with open(root / document, encoding="utf-8", newline="") as file:
        old = file.read()
    try:
        new = "\n".join(renewed(document, old.split("\n"), figures, differences, errors))
    except Missing as error:
        errors.append(str(error))
        return
    if write and new != old:
        with open(root / document, "w", encoding="utf-8", newline="") as file:
            file.write(new)


def strays(root):
    """Sentences about lines of blocks in documents that have none."""
    for path in sorted((root / "docs").glob("*.md")):
        document = path.relative_to(root).as_posix()
        if document not in BLOCKS:
            yield from (f"{document}, line {number}: no tables are made there" for number, line in
                        enumerate(path.read_text(encoding="utf-8").split("\n"), 1) if ALMOST.search(line))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    o = parser.parse_args()
    differences, errors = [], []
    try:
        figures = Figures(o.root)
        for document in BLOCKS:
            renew(o.root, document, figures, o.write, differences, errors)
        errors += strays(o.root)
    except OSError as error:
        errors.append(str(error))
    except MALFORMED as error:
        errors.append(f"{RECORD} or {PEERS} is malformed ({type(error).__name__}: {error})")
    for text in errors + ([] if o.write else differences):
        print(f"record_tables: {text}")
    if not errors and (o.write or not differences):
        print(f"record_tables: {sum(map(len, BLOCKS.values()))} blocks say what the record says")
    return 2 if errors else 1 if differences and not o.write else 0


if __name__ == "__main__":
    sys.exit(main())
