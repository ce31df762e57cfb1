#!/usr/bin/env python3
"""flashmask and PyTorch on the same cores and masks, in one record (docs/bench-schema.md).

Runs `flashmask bench` for causal_document at 8K and 32K, then torch's scaled_dot_product_attention with the same mask as
a dense boolean tensor, and prints the record with the peer slots filled. Torch comes from PyPI into a virtual environment
outside the tree unless --python names an interpreter that has it.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

DEFAULT_WORKLOADS = ["pack:8192:0", "pack:32768:0"]
LONG = 10  # seconds: a first run that takes longer is counted, its warm-up is lost in it
PATIENCE = 120  # seconds of torch a workload and dtype, after which no further repeat starts


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashmask", default="build/release/app/flashmask", help="the built command")
    parser.add_argument("--workload", action="append", help=f"default: {', '.join(DEFAULT_WORKLOADS)}")
    parser.add_argument("--mask", default="causal_document")
    parser.add_argument("--heads", type=int, default=2, help="query heads = KV heads: torch repeats KV heads otherwise")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp16", "f32"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", default="-", help="file for the record, - is standard output")
    parser.add_argument("--python", help="interpreter with torch; default: a virtual environment in --venv")
    parser.add_argument("--venv", default=os.path.expanduser("~/.cache/flashmask/torch-cpu"))
    parser.add_argument("--index-url", help="where pip finds torch; default: PyPI")
    return parser.parse_args()


def require_torch(arguments):
    """Continues in an interpreter that has torch, this one if it does."""
    try:
        import torch  # noqa: F401
        return
    except ImportError:
        pass
    python = arguments.python
    if python is None:
        python = str(pathlib.Path(arguments.venv) / "bin" / "python")
        if not os.path.exists(python):
            print(f"installing torch into {arguments.venv}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", arguments.venv], check=True)
            index = ["--index-url", arguments.index_url] if arguments.index_url else []
            subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "numpy", *index], check=True, stdout=sys.stderr)
    elif python == sys.executable:
        sys.exit(f"{python} has no torch")
    os.execv(python, [python, __file__, *sys.argv[1:], "--python", python])


def bench_ours(arguments, workload):
    command = [arguments.flashmask, "bench", "--mask", arguments.mask, "--workload", workload, "--heads", str(arguments.heads),
               "--head-dim", str(arguments.head_dim), "--dtype", arguments.dtype, "--threads", str(arguments.threads),
               "--repeats", str(arguments.repeats), "--json", "-"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def dense_mask(arguments, workload):
    """The mask's cells as a boolean tensor [batch, mask heads, rows, columns], from its exported vectors."""
    import torch
    command = [arguments.flashmask, "mask", "--mask", arguments.mask, "--workload", workload, "--export", "vectors"]
    mask = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    extents = (mask["batch"], mask["heads"], 1, mask["columns"])
    rows = torch.arange(mask["rows"], dtype=torch.int32).reshape(1, 1, -1, 1)
    lts, lte, uts, ute = (torch.tensor(mask[name], dtype=torch.int32).reshape(extents) for name in ("lts", "lte", "uts", "ute"))
    visible = torch.empty(extents[:2] + (mask["rows"], mask["columns"]), dtype=torch.bool)
    for start in range(0, mask["rows"], 1024):  # in strips: the intermediate results are not kept
        r = rows[:, :, start:start + 1024]
        visible[:, :, start:start + 1024] = ~(((r >= lts) & (r < lte)) | ((r >= uts) & (r < ute)))
    return visible


def time_torch(arguments, shape, mask, dtype_name):
    """Milliseconds of every forward and backward. The first run is a warm-up unless it takes over LONG seconds."""
    import torch
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "f32": torch.float32}[dtype_name]
    generator = torch.Generator().manual_seed(0)
    size = (shape["batch"], arguments.heads, shape["rows"], arguments.head_dim)
    q, k, v = (torch.randn(size, generator=generator).to(dtype).requires_grad_() for _ in range(3))
    gradient = torch.randn(size, generator=generator).to(dtype)
    times = {"forward": [], "backward": []}
    begin = time.perf_counter()
    for repeat in range(arguments.repeats + 1):
        q.grad = k.grad = v.grad = None
        start = time.perf_counter()
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        middle = time.perf_counter()
        out.backward(gradient)
        end = time.perf_counter()
        if repeat > 0 or end - start > LONG:
            times["forward"].append(1000 * (middle - start))
            times["backward"].append(1000 * (end - middle))
        if times["forward"] and end - begin > PATIENCE:
            break
    rows_seen = mask.any(dim=-1, keepdim=True)
    if not bool(torch.isfinite(out).logical_or(~rows_seen).all()):
        sys.exit("torch left a NaN in a row that sees something: not comparable")
    return times


def add_peer(result, name, samples, dtype_name):
    import torch
    ours = result[name]
    median = statistics.median(samples)
    scale = ours["time_ms"]["median"] / median  # both count the same operations
    peer = {"name": "torch scaled_dot_product_attention", "version": torch.__version__, "mask": "dense boolean",
            "dtype": dtype_name,
            "time_ms": {"median": median, "min": min(samples), "max": max(samples), "samples": len(samples)},
            "tflops": {kind: value * scale for kind, value in ours["tflops"].items()},
            "speedup": median / ours["time_ms"]["median"]}
    ours["peers"].append(peer)
    print(f"{result['mask']['name']} {name}: flashmask {ours['time_ms']['median']:.1f} ms, torch {dtype_name} {median:.1f} ms, "
          f"{peer['speedup']:.1f}x", file=sys.stderr)


def main():
    arguments = parse_arguments()
    require_torch(arguments)
    import torch
    torch.set_num_threads(arguments.threads)
    record = None
    for workload in arguments.workload or DEFAULT_WORKLOADS:
        ours = bench_ours(arguments, workload)
        result = ours["results"][0]
        mask = dense_mask(arguments, workload)
        if int(mask.sum()) != result["mask"]["visible_cells"]:
            sys.exit(f"the dense mask of {workload} shows other cells than flashmask's")
        for dtype_name in dict.fromkeys([arguments.dtype, "f32"]):  # torch may be faster in float32 on a CPU
            times = time_torch(arguments, result["shape"], mask, dtype_name)
            for name in ("forward", "backward"):
                add_peer(result, name, times[name], dtype_name)
        if record is None:
            record = ours
        else:
            record["results"] += ours["results"]
    text = json.dumps(record, indent=2) + "\n"
    if arguments.json == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(arguments.json).write_text(text)


if __name__ == "__main__":
    main()
