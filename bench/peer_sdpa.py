#!/usr/bin/env python3
"""Times cuDNN attention through torch's SDPA on the shapes of bench/sm90_forward.cu; JSON on stdout.

    peer_sdpa.py [--n 8192,32768] [--head-dim 128] [--heads 16] [--kv-heads 16] [--backward]

Protocols as in sm90_forward.cu: burst (0.5 s idle, 3 warm-ups, 9 launches, median of event pairs) and sustained
(batches of at least 45 ms back to back). Causal is counted as half of the 128 x 128 tiles plus the diagonal.
"""
import argparse
import json
import math
import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def events(launch, count):
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for i in range(count):
        launch()
        marks[i + 1].record()
    torch.cuda.synchronize()
    return [marks[i].elapsed_time(marks[i + 1]) for i in range(count)]


def burst(launch):
    time.sleep(0.5)
    warm = statistics.median(events(launch, 3))
    return statistics.median(events(launch, 5 if warm > 40 else 9))


def sustained(launch, each):
    count = max(1, math.ceil(45 / each))
    batches = []
    for batch in range(8):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            launch()
        stop.record()
        stop.synchronize()
        if batch >= 2:
            batches.append(start.elapsed_time(stop) / count)
    return statistics.median(batches)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", default="8192,32768")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=0)
    parser.add_argument("--backward", action="store_true")
    o = parser.parse_args()
    results = []
    for n in map(int, o.n.split(",")):
        batch = max(32768 // n, 1)
        kv = o.kv_heads or o.heads
        shape = lambda heads: torch.randn(batch, n, heads, o.head_dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        q, k, v = shape(o.heads), shape(kv), shape(kv)
        for causal in (False, True):
            tiles = n // 128
            flop = 4 * batch * o.heads * o.head_dim * (tiles * (tiles + 1) // 2 if causal else tiles * tiles) * 128 * 128
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                if o.backward:
                    for x in (q, k, v):
                        x.requires_grad_(True)
                    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv != o.heads)
                    grad = torch.randn_like(out)
                    flop *= 2.5
                    launch = lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)
                else:
                    launch = lambda: torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=causal, enable_gqa=kv != o.heads)
                ms = burst(launch)
                steady = sustained(launch, ms)
            results.append({"peer": "cudnn", "pass": "backward" if o.backward else "forward",
                            "mask": "causal" if causal else "full", "n": n, "batch": batch, "heads": o.heads,
                            "kv_heads": kv, "head_dim": o.head_dim, "ms": round(ms, 4),
                            "tflops_tile": round(flop / ms * 1e-9, 1), "sustained_ms": round(steady, 4),
                            "sustained_tflops_tile": round(flop / steady * 1e-9, 1)})
            print(json.dumps(results[-1]), flush=True)


if __name__ == "__main__":
    main()
