"""What KV modes cost and save on SmolLM2: memory, quality, speed of decoding.

    python benchmarks/kv_modes.py [--modes int8 turbo3] [--prompt 192] [--steps 256] [--work FOLDER]

A fixed text is read under each mode: the beginning as a prompt, the rest one token a step in the
batch that the engine decodes with, so that every prediction is made as in service. Quality is
the Kullback-Leibler divergence of the next-token distribution from the one under full KV, in
nats, and how often the likeliest token is the same. Bytes are those of a model in 16 bits. Speed
is the median over steps of the time under full KV by that under the mode. (No model here is of
the families that may have four-bit keys; `turbo4` is measured all the same.) The table is
markdown.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench_model import dense_checkpoint
from tokenizers import Tokenizer

from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.kv.choose import batch_for, row_caches
from mlxcel.engine.kv.modes import KVPlan, plan_kv
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.weights.load import LoadedModel, load_model

import mlx.core as mx  # isort: skip
import mlx.nn as nn  # isort: skip

FULL = "fp16"
KV = {
    "mode": FULL, "type_k": None, "type_v": None, "boundary_v_layers": 2, "bits": 0,
    "group_size": 64, "scheme": "uniform", "skip_last_layer": True,
}  # fmt: skip
MODES: dict[str, dict[str, Any]] = {
    FULL: {},
    "int8": {"mode": "int8"},
    "fp16+turbo4": {"mode": "fp16+turbo4"},
    "turbo4-delegated": {"mode": "turbo4-delegated"},
    "fp16+turbo3": {"mode": "fp16+turbo3"},
    "turbo4": {"mode": "turbo4"},
    "uniform-8": {"bits": 8},
    "uniform-4": {"bits": 4},
    "turboquant-4": {"bits": 4, "scheme": "turboquant"},
}
FOUR_BIT_KEYS = "qwen3_5"
TIMED = 32
"""Steps whose time counts."""
TEXT = """It is a truth universally acknowledged, that a single man in possession of a good \
fortune, must be in want of a wife. However little known the feelings or views of such a man may \
be on his first entering a neighbourhood, this truth is so well fixed in the minds of the \
surrounding families, that he is considered the rightful property of some one or other of their \
daughters.

The harbour lay quiet under a low sky. Two boats had come in before noon with less fish than the \
day before, and the women who mended nets along the wall spoke of the price of flour rather than \
of the weather. When the engineer arrived he asked for the ledger first, then for the keys to the \
pump house. The old pump had been built in 1911, he wrote, and lifts 340 litres a minute when the \
valve is clean; since April nobody had cleaned it. He drew a small plan: the reservoir at the top \
of the hill, the pipe along the school, the three taps in the market. If the pipe were moved by \
four metres, the school would have water even in August.

def area(shapes):
    total = 0.0
    for shape in shapes:
        if shape["kind"] == "circle":
            total += 3.14159 * shape["radius"] ** 2
        elif shape["kind"] == "square":
            total += shape["side"] ** 2
    return total

In the evening the council met. "We can dig in October," said the mayor, "when the tourists have \
gone." The engineer answered that the ground would be hard by then, and that a week of digging in \
June costs less than a month of carrying water. They counted the votes twice. Seven were for June, \
five for October, and one paper was blank. So the work began on the second Monday, and by the end \
of the month the children could drink in the yard of the school, which is what the teacher had \
asked for in her letter eight years before. Nobody remembered the letter but the clerk, who had \
kept it in the drawer together with the ledger, the keys and a photograph of the old pump."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--prompt", type=int, default=192)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--work", type=Path, default=Path(".cache/bench"))
    args = parser.parse_args()
    folder = dense_checkpoint(args.work)
    model = _model(folder)
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT).ids
    tokens = tokens[: args.prompt + args.steps]
    print(f"{folder.name}, {mx.default_device()}, {model.precision}; prompt {args.prompt}, "
          f"{len(tokens) - args.prompt} steps")  # fmt: skip
    print("| mode | bytes a token | of full | KL mean | KL 99 % | same first | decode speed |")
    print("|---|---|---|---|---|---|---|")
    prompt, rest = tokens[: args.prompt], tokens[args.prompt :]
    full = _read(model.network, KVPlan(), prompt)
    row = _row(model.network, KVPlan(), full)
    wanted = [_step(model.network, row, token)[0] for token in rest]
    for mode in args.modes:
        plan = _plan(model, mode)
        read = _read(model.network, plan, prompt)
        line = _line(model.network, plan, read, rest, wanted)
        ratio = _speed(model.network, plan, full, read, rest)
        print(f"| {mode} {line} | {ratio:.2f} |", flush=True)


def _model(folder: Path) -> LoadedModel:
    options = {
        "path": str(folder), "precision": "auto", "batch": 4, "device": "auto",
        "train_window": 8192, "fuse_projections": "off", "weight_materialization": "eager",
    }  # fmt: skip
    return load_model(options, lambda step, fraction: None)


def _plan(model: LoadedModel, mode: str) -> KVPlan:
    family = FOUR_BIT_KEYS if mode == "turbo4" else model.family
    return plan_kv(model.network, family, {"max_kv_size": 0, "kv": KV | MODES[mode]})


def _line(
    network: nn.Module, plan: KVPlan, read: Prefilled, rest: list[int], wanted: list[np.ndarray]
) -> str:
    row = _row(network, plan, read)
    divergences, same = [], []
    for token, p in zip(rest, wanted, strict=True):
        q, _ = _step(network, row, token)
        divergences.append(float((np.exp(p) * (p - q)).sum()))
        same.append(p.argmax() == q.argmax())
    size, whole = (_token_bytes(network, one) for one in (plan, KVPlan()))
    return (
        f"| {size} | {size / whole:.2f} | {np.mean(divergences):.4f} "
        f"| {np.quantile(divergences, 0.99):.3f} | {np.mean(same):.1%}"
    )


def _speed(
    network: nn.Module, plan: KVPlan, full: Prefilled, read: Prefilled, rest: list[int]
) -> float:
    """Full KV and the mode take turns, token by token: the machine may have other work."""
    rows = _row(network, KVPlan(), full), _row(network, plan, read)
    taken = [[_step(network, row, token)[1] for row in rows] for token in rest[:TIMED]]
    return statistics.median(full_s / mode_s for full_s, mode_s in taken)


def _read(network: nn.Module, plan: KVPlan, prompt: list[int]) -> Prefilled:
    caches = row_caches(network, plan)
    network(mx.array([prompt]), cache=caches)
    mx.eval([cache.state for cache in caches])
    return Prefilled(caches, (len(prompt),))


def _row(network: nn.Module, plan: KVPlan, prompt: Prefilled) -> KVBatch:
    kv = batch_for(network, 1, plan)
    kv.join(prompt)
    return kv


def _step(network: nn.Module, kv: KVBatch, token: int) -> tuple[np.ndarray, float]:
    """Log-probabilities of what follows a token, and the seconds it took."""
    began = time.perf_counter()
    kv.begin()
    logits = network(mx.array([[token]]), cache=kv.layers)[0, -1]
    kv.advance()
    mx.eval(logits)
    took = time.perf_counter() - began
    exact = np.array(logits.astype(mx.float32)).astype(np.float64)
    return exact - np.logaddexp.reduce(exact), took


def _token_bytes(network: nn.Module, plan: KVPlan) -> int:
    """KV of one token in all layers, of a model in 16 bits."""
    caches: list[Any] = row_caches(network, KVPlan())
    network(mx.array([[0]]), cache=caches)
    size = 0
    for layer, cache in enumerate(caches):
        keys, values = (a[:, :, :1].astype(mx.bfloat16) for a in (cache.keys, cache.values))
        codec = plan.codec(layer)
        parts = (keys, values) if codec is None else codec.encode(keys, values)
        size += sum(part.nbytes for part in parts)
    return size


if __name__ == "__main__":
    main()
