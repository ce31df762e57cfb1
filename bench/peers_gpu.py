#!/usr/bin/env python3
"""Our Hopper kernels, cuDNN (through torch's SDPA) and FlexAttention on the same tensors and masks in one process.

    bench/peers_gpu.py --build build/device --rows 8192,32768 --json peers.json

Writes docs/bench-schema.md records, after every mask (so a run that is cut off leaves what it had). Masks are the twelve of
the public benchmark, over pack 0 of the length; FlexAttention gets them as a mask_mod of the four vectors. cuDNN serves full
and causal. A peer that is missing, fails to compile or fails to run is listed with its error. Times: burst (0.5 s idle,
3 warm-ups, 9 launches, 5 above 40 ms) and sustained (six batches of at least 45 ms), as bench/sm90_forward.cu.
"""
import argparse
import ctypes
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from sm90_library import VECTORS, Library, Ours, Shape  # noqa: E402

MASKS = ["full", "causal", "sliding_window", "causal_document", "document", "share_question", "global_sliding_window",
         "causal_blockwise", "prefix_lm_causal", "prefix_lm_document", "qk_sparse_blocks", "random_eviction"]
PASSES = {"forward": 1.0, "backward": 2.5}  # operations, in those of a forward


def fail(text):
    print(f"peers_gpu: error: {text}", file=sys.stderr)
    sys.exit(2)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/device"),
                        help="build folder, or a folder that holds both libflashmask.so and flashmask")
    parser.add_argument("--rows", default="8192,32768", help="sequence lengths")
    parser.add_argument("--mask", default=",".join(MASKS), help="some of the twelve")
    parser.add_argument("--heads", default="", help="query heads[:KV heads]; default 16, 8 above 65536 rows")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--batch", type=int, default=0, help="default 32768 / rows, 1 at least")
    parser.add_argument("--passes", default="forward,backward")
    parser.add_argument("--peers", default="cudnn,flex")
    parser.add_argument("--seconds", type=float, default=540, help="no further mask is started after this time")
    parser.add_argument("--json", default="-", help="file for the record, - is standard output")
    o = parser.parse_args(arguments)
    for name, known in (("mask", MASKS), ("passes", list(PASSES)), ("peers", ["cudnn", "flex"])):
        wanted = [word for word in getattr(o, name).split(",") if word]
        for word in wanted:
            if word not in known:
                fail(f"--{name} {word}: known are {', '.join(known)}")
        if not wanted and name != "peers":
            fail(f"--{name} names none: known are {', '.join(known)}")
        setattr(o, name, wanted)
    given = f"--rows {o.rows}" + (f" --heads {o.heads}" if o.heads else "")
    try:
        o.rows = [int(n) for n in o.rows.split(",")]
        heads = [int(h) for h in o.heads.split(":")] if o.heads else []
    except ValueError:
        fail(f"{given}: expected numbers, as in --rows 8192,32768 --heads 64:8")
    if min(o.rows) < 1:
        fail(f"--rows {','.join(map(str, o.rows))}: expected sequence lengths of at least 1")
    if len(heads) > 2 or min(heads, default=1) < 1 or (heads and heads[0] % heads[-1] != 0):
        fail(f"--heads {':'.join(map(str, heads))}: expected query heads[:KV heads], the first a multiple of the second, as in 64:8")
    if not 8 <= o.head_dim <= 128 or o.head_dim % 8 != 0:
        fail(f"--head-dim {o.head_dim}: expected a multiple of 8 from 8 to 128")
    if o.batch < 0:
        fail(f"--batch {o.batch}: expected at least 1, or 0 for 32768 / rows")
    if not o.seconds > 0:
        fail(f"--seconds {o.seconds}: expected a positive time")
    if o.json != "-" and not pathlib.Path(o.json).resolve().parent.is_dir():
        fail(f"--json {o.json}: its folder does not exist")
    o.heads = heads
    return o


# ---- masks ----

def load_mask(command, name, rows):
    """Vectors and counts of one benchmark mask, one batch row and mask head, from `flashmask mask`."""
    call = [command, "mask", "--mask", name, "--workload", f"pack:{rows}:0"]
    output = [subprocess.run(call + more, check=True, stdout=subprocess.PIPE).stdout
              for more in (["--json", "-"], ["--export", "vectors"])]
    facts, mask = map(json.loads, output)
    for vector in VECTORS:
        while isinstance(mask[vector][0], list):  # one batch row, one head
            mask[vector] = mask[vector][0]
    return {**{vector: mask[vector] for vector in VECTORS}, "name": name, "rows": rows, "digest": facts["digest"],
            "visible_cells": facts["visible_cells"], "density": facts["density"]}


def visible(vectors, row, column):
    """Whether `row` sees `column`; numbers and lists, or tensors."""
    lts, lte, uts, ute = vectors
    hidden = ((row >= lts[column]) & (row < lte[column])) | ((row >= uts[column]) & (row < ute[column]))
    return hidden == 0


def mask_mod_of(vectors):
    def mask_mod(batch, head, row, column):
        return visible(vectors, row, column)
    return mask_mod


# ---- peers ----

def torch_peer(attention, tensors):
    """Forward and backward launches of a differentiable torch attention on BHSD views of the same memory."""
    import torch
    q, k, v = (tensors[name].transpose(1, 2).detach().requires_grad_(True) for name in "qkv")
    dout = tensors["dout"].transpose(1, 2)
    out = attention(q, k, v)

    def forward():
        with torch.no_grad():
            attention(q, k, v)
    return {"forward": forward, "backward": lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True),
            "out": out.detach().transpose(1, 2)}


def cudnn_peer(mask, vectors, tensors):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if mask["name"] not in ("full", "causal"):
        raise NotImplementedError("serves full and causal alone; other masks would need a dense bias")
    gqa = tensors["q"].shape[2] != tensors["k"].shape[2]

    def attention(q, k, v):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=mask["name"] == "causal", enable_gqa=gqa)
    return torch_peer(attention, tensors)


def flex_peer(mask, vectors, tensors):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    torch._dynamo.reset()  # each mask is a program of its own; the limit on recompilations is not what is measured
    gqa = tensors["q"].shape[2] != tensors["k"].shape[2]
    rows, columns = tensors["q"].shape[1], tensors["k"].shape[1]
    block_mask = torch.compile(create_block_mask, dynamic=False)(mask_mod_of(vectors), None, None, rows, columns, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    return torch_peer(lambda q, k, v: compiled(q, k, v, block_mask=block_mask, enable_gqa=gqa), tensors)


PEERS = {"cudnn": (cudnn_peer, "is_causal flag"), "flex": (flex_peer, "block mask of the four vectors")}


def peer_version(name):
    import torch
    return f"torch {torch.__version__}" + (f", cuDNN {torch.backends.cudnn.version()}" if name == "cudnn" else "")


# ---- timing ----

def time_launches(launch, count):
    import torch
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for mark in marks[1:]:
        launch()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def burst(launch):
    time.sleep(0.5)
    usual = statistics.median(time_launches(launch, 3))  # the first may set things up
    return time_launches(launch, 5 if usual > 40 else 9)


def sustained(launch, each):
    count = max(1, math.ceil(45 / each))
    return [ms / count for ms in time_launches(lambda: [launch() for _ in range(count)], 8)[2:]]


def timed(samples, mask, shape, factor):
    """Members time_ms and tflops; element counts visible cells, tile the 128 x 128 tiles that are not masked."""
    median = statistics.median(samples)
    per_cell = factor * 4 * shape.head_dim * shape.batch * shape.query_heads / median / 1e9
    return {"time_ms": {"median": median, "min": min(samples), "max": max(samples), "samples": len(samples)},
            "tflops": {"element": per_cell * mask["visible_cells"],
                       "tile": per_cell * mask["density"]["tile"] * shape.rows * shape.columns}}


def time_pass(launch, mask, shape, factor):
    figures = burst(launch)
    return {**timed(figures, mask, shape, factor), "sustained": timed(sustained(launch, min(figures)), mask, shape, factor)}


# ---- the record ----

def make_tensors(rows, batch, heads, kv_heads, dim):
    import torch
    torch.manual_seed(0)

    def normal(positions, count):
        return torch.randn(batch, positions, count, dim, device="cuda", dtype=torch.bfloat16)
    tensors = {"q": normal(rows, heads), "k": normal(rows, kv_heads), "v": normal(rows, kv_heads), "dout": normal(rows, heads),
               "lse": torch.empty(batch, heads, rows, device="cuda")}
    for name, like in (("out", "q"), ("dq", "q"), ("dk", "k"), ("dv", "v")):
        tensors[name] = torch.full_like(tensors[like], float("nan"))
    return tensors


def peer_entry(name, result, mask, ours, tensors, passes):
    """Times one peer and appends it to the passes of `result`; a peer that cannot, says why in its place."""
    import torch
    make, form = PEERS[name]
    entry = {"name": name, "version": peer_version(name), "mask": form, "dtype": "bf16"}
    try:
        peer = make(mask, ours.vectors, tensors)
        entry["largest_difference"] = float((peer["out"] - tensors["out"]).abs().max())
        for which in passes:
            figures = time_pass(peer[which], mask, ours.shape, PASSES[which])
            own = result[which]
            speedup = figures["time_ms"]["median"] / own["time_ms"]["median"]
            steady = figures["sustained"]["time_ms"]["median"] / own["sustained"]["time_ms"]["median"]
            own["peers"].append({**entry, **figures, "speedup": speedup, "sustained_speedup": steady})
            print(f"{mask['name']} {mask['rows']} {which}: {name} {figures['time_ms']['median']:.4f} ms, {speedup:.2f}x "
                  f"(sustained {steady:.2f}x)", file=sys.stderr, flush=True)
    except Exception as error:  # torch's own failures have no common base; the record says which it was
        text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        for which in passes:
            if not any(peer["name"] == name for peer in result[which]["peers"]):
                result[which]["peers"].append({**entry, "error": text})
        print(f"{mask['name']} {mask['rows']}: {name}: {text}", file=sys.stderr, flush=True)
    torch.cuda.synchronize()


def measure(library, mask, tensors, o):
    ours = Ours(library, mask, tensors)
    s = ours.shape
    result = {"mask": {key: mask[key] for key in ("name", "digest", "visible_cells", "density")},
              "shape": {**{name: getattr(s, name) for name, _ in Shape._fields_}, "dtype": "bf16"},
              "sm90": {f"{name}_tile": tile for name, tile in ours.tiles.items()}}
    ours.forward()
    for which in o.passes:
        result[which] = {**time_pass(getattr(ours, which), mask, s, PASSES[which]), "peers": []}
        print(f"{mask['name']} {mask['rows']} {which}: ours {result[which]['time_ms']['median']:.4f} ms, "
              f"{result[which]['tflops']['tile']:.0f} TFLOP/s", file=sys.stderr, flush=True)
    for name in o.peers:
        peer_entry(name, result, mask, ours, tensors, o.passes)
    library.sm90_check_workspace(ctypes.c_void_p(ours.workspace.data_ptr()), None)
    ours.close()
    return result


def find(build, *names):
    for name in names:
        if (build / name).is_file():
            return (build / name).resolve()
    fail(f"--build {build}: none of {', '.join(names)} is there; build the targets flashmask and flashmask_app of the preset device")


def start(o):
    """Everything that must be there, or a sentence about what is not: (command, library, empty record)."""
    command, path = find(o.build, "app/flashmask", "flashmask"), find(o.build, "libflashmask.so", "libflashmask.so.0")
    try:
        import torch
    except ImportError:
        fail(f"{sys.executable} has no torch; take an interpreter that has, with CUDA")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        fail("torch sees no Hopper GPU; run where nvidia-smi lists one and torch is built for CUDA")
    library = Library(path)
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    record = {"format": "flashmask.bench", "version": 1, "flashmask": library.c.flashmask_version().decode(), "backend": "sm90",
              "machine": {"gpu": torch.cuda.get_device_name(), "driver": driver.stdout.splitlines()[0] if driver.stdout else None},
              "protocol": {"clock": "events on the device around launches queued back to back after 0.5 s of idle time",
                           "warmups": 3, "repeats": 9, "sustained": "six batches of at least 45 ms without idle time"},
              "results": [], "left_out": []}
    return command, library, record


def main():
    o = parse_arguments()
    command, library, record = start(o)
    begin = time.monotonic()
    for rows in o.rows:
        heads = o.heads or [16 if rows <= 65536 else 8]
        tensors = make_tensors(rows, o.batch or max(1, 32768 // rows), heads[0], heads[-1], o.head_dim)
        for name in o.mask:
            if time.monotonic() - begin > o.seconds:
                record["left_out"].append(f"{name} {rows}")
                continue
            record["results"].append(measure(library, load_mask(command, name, rows), tensors, o))
            if o.json != "-":
                pathlib.Path(o.json).write_text(json.dumps(record, indent=1) + "\n")
        del tensors
    text = json.dumps(record, indent=1) + "\n"
    if o.json == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(o.json).write_text(text)
    if record["left_out"]:
        print(f"peers_gpu: left out after {o.seconds:.0f} s: {', '.join(record['left_out'])}", file=sys.stderr)


if __name__ == "__main__":
    main()
