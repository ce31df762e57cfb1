"""cuDNN backward through torch SDPA, in the same run as sm90_backward: burst and sustained, one JSON object a line.

    python3 bench/peer_sdpa_backward.py [N[:heads:kv_heads:head_dim:batch] ...]

full and causal only: the masks cuDNN serves without a bias tensor. The protocol is that of bench/sm90_backward.cu.
"""
import json
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def launches(call, count):
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    for spec in sys.argv[1:] or ["8192", "32768"]:
        parts = [int(x) for x in spec.split(":")]
        n = parts[0]
        heads, kv_heads, dim, batch = (parts[1:] + [16, 16, 128, max(1, 32768 // n)][len(parts) - 1:])[:4]
        q = torch.randn(batch, heads, n, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        k, v = (torch.randn(batch, kv_heads, n, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                for _ in range(2))
        for causal in (False, True):
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                                       enable_gqa=heads != kv_heads)
            dout = torch.randn_like(out)

            def call():
                torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

            time.sleep(0.5)
            warm = median(launches(call, 3))
            burst = median(launches(call, 5 if warm > 40 else 9))
            count = max(1, int(45 / burst + 1))
            batches = [launches(lambda: [call() for _ in range(count)], 1)[0] / count for _ in range(8)][2:]
            blocks = (n + 127) // 128
            tiles = blocks * (blocks + 1) / 2 if causal else blocks * blocks
            work = 10 * dim * heads * batch * tiles * 128 * 128 * 1e-9
            print(json.dumps({"peer": "cudnn", "mask": "causal" if causal else "full", "n": n, "head_dim": dim,
                              "heads": f"{heads}:{kv_heads}", "burst_ms": round(burst, 4),
                              "burst_tflops": round(work / burst), "sustained_ms": round(median(batches), 4),
                              "sustained_tflops": round(work / median(batches))}), flush=True)
            del out, dout


if __name__ == "__main__":
    main()
