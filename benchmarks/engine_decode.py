"""Decode speed of the engine without HTTP, on any backend, beside what it could be.

    python benchmarks/engine_decode.py [--shapes 0.6b 8b] [--batches 1 4 16 64] [--steps 64]

Contestants hold random weights in a Qwen3 shape: our worker, tick by tick, with fused projections
and without; a bare greedy loop over equal rows with mlx-lm's caches; mlx-lm's `BatchGenerator`.
They take turns in one process; the table gives medians of tokens a second and ratios. `spread`
is our worker with rows of lengths spread 1:4 around the same sum.
"""

import argparse
import array
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bench_blas  # noqa: F401  # isort: skip
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.chat import ChatWorker
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.link.messages import Cancel, Submit
from mlxcel.weights.fuse import fuse_projections
from mlxcel.weights.load import LoadedModel, current_backend

import mlx.core as mx  # isort: skip
from mlx.utils import tree_map
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import qwen3
from mlx_lm.models.cache import KVCache

SHAPES = {
    "tiny": (256, 4, 512, 8, 4, 64, 2048),
    "0.6b": (1024, 28, 3072, 16, 8, 128, 151936),
    "8b": (4096, 36, 12288, 32, 8, 128, 151936),
}
PROMPT = 512


def random_model(shape: str, dtype: mx.Dtype) -> LoadedModel:
    hidden, layers, wide, heads, kv_heads, dim, vocab = SHAPES[shape]
    args = qwen3.ModelArgs(
        model_type="qwen3", hidden_size=hidden, num_hidden_layers=layers, intermediate_size=wide,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=dim, vocab_size=vocab,
        rms_norm_eps=1e-6, rope_theta=1e6, max_position_embeddings=40960,
        tie_word_embeddings=shape != "8b",
    )  # fmt: skip
    network = qwen3.Model(args)
    network.update(tree_map(lambda a: (mx.random.normal(a.shape) * 0.02).astype(dtype),
                            network.parameters()))  # fmt: skip
    mx.eval(network.parameters())
    return LoadedModel(
        network=network, folder=Path("random"),
        config={"model_type": "qwen3", "vocab_size": vocab, "hidden_size": hidden},
        precision="random", backend=current_backend(), parameters=0, weights_bytes=0,
        train_window=40960,
    )  # fmt: skip


CACHE = {
    "max_kv_size": 0, "kv_budget": 0, "kv_watermark": 0.01, "context_shift": False, "keep": 0,
    "prompt": {
        "enabled": True, "capacity_bytes": None, "ram_mib": None, "max_entries": 1024,
        "ttl_secs": 3600, "min_prefix": 32,
    },
    "apc": {
        "enabled": True, "block_size": 16, "num_blocks": None, "hash": "sha256", "trace": False,
    },
    "snapshot": {"capacity_bytes": None, "max_entries": 4096, "ttl_secs": 7200, "boundary": True},
    "kv": {
        "mode": "fp16", "type_k": None, "type_v": None, "boundary_v_layers": 2, "bits": 0,
        "group_size": 64, "scheme": "uniform", "skip_last_layer": True,
    },
    "disk": {"path": None}, "conversations": {"enabled": False}, "prefix_dir": None,
}  # fmt: skip
"""The section `cache`, as conf/cache/default.yaml has it."""

NO_DRAFT = {"kind": "none"}


def prompt_of(length: int, seed: int) -> list[int]:
    return [(seed * 7919 + i * 104729) % 2000 for i in range(length)]


def worker_of(
    model: LoadedModel,
    rows: int,
    cache: Mapping[str, Any] = CACHE,
    draft: Mapping[str, Any] = NO_DRAFT,
    drafter: DraftHead | None = None,
) -> ChatWorker:
    scheduler = {
        "parallel": rows, "max_batch_size": None, "no_batch": False,
        "prefill_chunk_size": 2048, "prefill_grant_interval": 16, "max_batch_prefill": 4,
        "max_batch_prefill_tokens": None, "mixed_step": False, "lookahead": True,
        "clear_interval": None, "preemption": {"enabled": False, "policy": "longest-first"},
    }  # fmt: skip
    options = {
        "scheduler": scheduler, "ctx_size": 0, "warmup": False, "max_queue_depth": 1024,
        "cache": cache, "model_name": "random", "cache_dir": None, "draft": draft,
        "request_memory_budget": None, "lang_bias_counters": False,
    }  # fmt: skip
    worker = ChatWorker(options)
    parts = {"model": model} if drafter is None else {"model": model, "drafter": drafter}
    worker.setup(parts, lambda step, fraction: None)
    return worker


def ours(model: LoadedModel, lengths: list[int], steps: int) -> float:
    worker = worker_of(model, len(lengths))
    worker.tick([
        Submit(
            id=str(i), tokens=array.array("i", prompt_of(n, i)).tobytes(),
            sampling=SamplingParams(temperature=0), max_tokens=10_000, eos_ids=(-1,),
        )
        for i, n in enumerate(lengths)
    ])  # fmt: skip
    while len(worker._scheduler._decoder.rows) < len(lengths):
        worker.tick([])
    for _ in range(4):
        worker.tick([])
    began = time.perf_counter()
    for _ in range(steps):
        worker.tick([])
    rate = len(lengths) * steps / (time.perf_counter() - began)
    worker.tick([Cancel(id=str(i)) for i in range(len(lengths))])
    worker.close()
    return rate


def bare(model: LoadedModel, rows: int, steps: int) -> float:
    caches = [KVCache() for _ in model.network.layers]
    prompts = mx.array([prompt_of(PROMPT, i) for i in range(rows)])
    # Without the head: its logits of a whole cohort would not fit.
    model.network.model(prompts, caches)
    mx.eval([cache.state for cache in caches])
    tokens = mx.zeros((rows,), dtype=mx.int32)
    for step in range(steps + 4):
        if step == 4:
            mx.eval(tokens)
            began = time.perf_counter()
        following = mx.argmax(model.network(tokens[:, None], cache=caches)[:, -1], axis=-1)
        mx.async_eval(following)
        tokens.tolist()
        tokens = following
    mx.eval(tokens)
    return rows * steps / (time.perf_counter() - began)


def peer(model: LoadedModel, rows: int, steps: int) -> float:
    generator = BatchGenerator(
        model.network, max_tokens=10_000, completion_batch_size=rows, prefill_batch_size=rows
    )
    generator.insert([prompt_of(PROMPT, i) for i in range(rows)])
    seen = 0
    while seen < rows:
        seen = len(generator.next()[1])
    for _ in range(4):
        generator.next()
    began = time.perf_counter()
    for _ in range(steps):
        generator.next()
    rate = rows * steps / (time.perf_counter() - began)
    generator.close()
    return rate


def spread(rows: int) -> list[int]:
    """Lengths from 1 to 4 parts, with the mean of `PROMPT`."""
    if rows == 1:
        return [PROMPT]
    parts = [1 + 3 * i / (rows - 1) for i in range(rows)]
    return [max(8, int(PROMPT * part / 2.5)) for part in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["0.6b"], choices=sorted(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print(f"{mx.default_device()} bf16 random weights, prompt {PROMPT}, {args.repeats} repeats")
    print(f"{'shape':>5} {'rows':>4} {'ours':>8} {'spread':>8} {'unfused':>8} {'bare':>8}"
          f" {'BatchGen':>8} {'ours/bare':>9} {'ours/BG':>8} {'spread':>8}")  # fmt: skip
    for shape in args.shapes:
        model, fused = random_model(shape, mx.bfloat16), random_model(shape, mx.bfloat16)
        fuse_projections(fused.network)
        for rows in args.batches:
            report(shape, rows, model, fused, args.steps, args.repeats)


def report(
    shape: str, rows: int, model: LoadedModel, fused: LoadedModel, steps: int, repeats: int
) -> None:
    contestants: dict[str, Callable[[], float]] = {
        "ours": lambda: ours(fused, [PROMPT] * rows, steps),
        "spread": lambda: ours(fused, spread(rows), steps),
        "plain": lambda: ours(model, [PROMPT] * rows, steps),
        "bare": lambda: bare(model, rows, steps),
        "peer": lambda: peer(model, rows, steps),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            rates[name].append(run())
    mid = {name: statistics.median(values) for name, values in rates.items()}
    print(f"{shape:>5} {rows:>4} {mid['ours']:>8.1f} {mid['spread']:>8.1f} {mid['plain']:>8.1f}"
          f" {mid['bare']:>8.1f}"
          f" {mid['peer']:>8.1f} {mid['ours'] / mid['bare']:>9.2f}"
          f" {mid['ours'] / mid['peer']:>8.2f} {mid['ours'] / mid['spread']:>8.2f}",
          flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
