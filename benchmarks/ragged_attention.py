"""Decode attention over rows of unequal length: our kernel, a mask, and no mask for comparison.

    python benchmarks/ragged_attention.py [--rows 4 16 64] [--lengths 512 4096]

Qwen3-8B's heads (32 query, 8 KV, 128 wide), bf16; lengths spread 1:4 around the mean. CUDA only.
Milliseconds a call, in chains of 36 calls as in a step; the largest difference from float32.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import mlxcel.engine  # noqa: F401  the BLAS goes first
from mlxcel.engine.kv.attend import attend

import mlx.core as mx  # isort: skip

HEADS, GROUP, DIM, CHAIN = 8, 4, 128, 36
SCALE = DIM**-0.5


def lengths_of(rows: int, mean: int) -> list[int]:
    return [int(mean * (1 + 3 * i / max(1, rows - 1)) / 2.5) for i in range(rows)]


def timed(call: Callable[[mx.array], mx.array], queries: mx.array) -> float:
    spent = []
    for _ in range(7):
        began = time.perf_counter()
        out = queries
        for _ in range(CHAIN):
            out = call(out)
        mx.eval(out)
        spent.append((time.perf_counter() - began) / CHAIN * 1e3)
    return statistics.median(spent[2:])


def report(rows: int, mean: int) -> None:
    lengths = lengths_of(rows, mean)
    columns = (max(lengths) + 256) // 256 * 256
    queries = mx.random.normal((rows, HEADS * GROUP, 1, DIM)).astype(mx.bfloat16)
    keys = mx.random.normal((rows, HEADS, columns, DIM)).astype(mx.bfloat16)
    values = mx.random.normal((rows, HEADS, columns, DIM)).astype(mx.bfloat16)
    offsets = mx.array(lengths, dtype=mx.int32)
    mask = mx.arange(columns)[None, None, None] <= offsets[:, None, None, None]
    mx.eval(queries, keys, values, mask)
    sdpa = mx.fast.scaled_dot_product_attention
    exact = sdpa(*(a.astype(mx.float32) for a in (queries, keys, values)), scale=SCALE, mask=mask)
    apart = mx.max(mx.abs(exact - attend(queries, keys, values, offsets, SCALE))).item()
    own = timed(lambda q: attend(q, keys, values, offsets, SCALE), queries)
    masked = timed(lambda q: sdpa(q, keys, values, scale=SCALE, mask=mask), queries)
    free = timed(lambda q: sdpa(q, keys, values, scale=SCALE), queries)
    print(f"{rows:>4} {mean:>6} {own:>8.3f} {masked:>8.3f} {free:>8.3f} {apart:>10.5f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[4, 16, 64])
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 4096])
    args = parser.parse_args()
    print(f"{'rows':>4} {'length':>6} {'ours':>8} {'mask':>8} {'no mask':>8} {'off by':>10}")
    for mean in args.lengths:
        for rows in args.rows:
            report(rows, mean)


if __name__ == "__main__":
    main()
