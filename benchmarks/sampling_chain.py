"""What the sampling chain costs: alone, and as a part of SmolLM2's decode step.

    python benchmarks/sampling_chain.py [--parts chain decode] [--batches 1 4 16] [--repeats 9]

`chain`: one step of `BatchSampler` on random logits of 49,152 tokens, every kind of row, all rows
of the batch of that kind. `decode`: steps of SmolLM2 in float32 with 16 equal rows, mlx-lm's own
caches and one step in flight, sampled greedily, with the default settings and with everything
on. Contestants take turns within one run; tables are markdown, medians and lowest-highest.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from bench_model import dense_checkpoint

from mlxcel.core.sampling import AdaptiveP, Dry, DynamicTemperature, Mirostat, SamplingParams
from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.history import History
from mlxcel.engine.sampling.state import RowState, initial_state
from mlxcel.weights.load import LoadedModel, load_model

import mlx.core as mx  # isort: skip
from mlx_lm.models.cache import KVCache

VOCAB = 49152
PROMPT = 64
ROWS = 16
DEFAULTS = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
EVERYTHING = SamplingParams(
    temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, typical_p=0.95, top_n_sigma=2.0,
    xtc_probability=0.5, xtc_spared=(2, 198), repetition_penalty=1.1, frequency_penalty=0.1,
    presence_penalty=0.1, bias=((3, -1.0),),
    dry=Dry(multiplier=0.8, base=1.75, allowed_length=2, window=64, breakers=(198,)),
    dynamic_temperature=DynamicTemperature(span=0.2, exponent=1.0),
)  # fmt: skip
UNCUT = msgspec.structs.replace(EVERYTHING, top_k=0)
KINDS = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.8),
    "defaults (top-k 40, top-p, min-p)": DEFAULTS,
    "everything, top-k 40": EVERYTHING,
    "everything, top-k 400": msgspec.structs.replace(EVERYTHING, top_k=400),
    "everything, no top-k": UNCUT,
    "top-p": SamplingParams(top_p=0.95),
    "min-p": SamplingParams(min_p=0.05),
    "typical": SamplingParams(typical_p=0.95),
    "top-n-sigma": SamplingParams(top_n_sigma=2.0),
    "XTC": SamplingParams(xtc_probability=0.5),
    "dynamic temperature": SamplingParams(
        dynamic_temperature=DynamicTemperature(span=0.2, exponent=1.0)
    ),
    "adaptive-p": SamplingParams(adaptive=AdaptiveP(target=0.5, decay=0.9)),
    "mirostat 1": SamplingParams(mirostat=Mirostat(version=1, rate=0.1, target=5.0)),
    "mirostat 2": SamplingParams(mirostat=Mirostat(version=2, rate=0.1, target=5.0)),
}
DECODED = ("greedy", "defaults (top-k 40, top-p, min-p)", "everything, top-k 40",
           "everything, no top-k")  # fmt: skip


class Sampled:
    """A batch of rows of one kind, with all that the decode loop keeps for its sampler."""

    def __init__(self, kind: SamplingParams, rows: int) -> None:
        each = [msgspec.structs.replace(kind, seed=seed) for seed in range(rows)]
        self.rows = rows
        self._sampler = BatchSampler(each, VOCAB)
        self._history, self._state = History(), RowState()
        for row in range(rows):
            said = [(row * 7 + i * i) % 50 for i in range(80)]
            self._history.join(said, kind.history_width)
            self._state.join(initial_state(kind))
        self._position = 0

    def __call__(self, logits: mx.array) -> mx.array:
        """Started, not waited for: tokens `[rows]`."""
        places = [self._position] * self.rows
        drawn = self._sampler(logits, places, self._history.tokens, self._state.values)
        self._position += 1
        self._state.take(drawn.state)
        self._history.push(drawn.tokens)
        mx.async_eval(drawn.tokens, drawn.state, self._history.tokens)
        return drawn.tokens


def chain_ms(kind: SamplingParams, rows: int) -> Callable[[], float]:
    sampled = Sampled(kind, rows)
    logits = mx.random.normal((rows, VOCAB)) * 3
    mx.eval(logits)

    def measure() -> float:
        began = time.perf_counter()
        mx.eval(sampled(logits))
        return (time.perf_counter() - began) * 1e3

    return measure


def decode_ms(model: LoadedModel, kind: SamplingParams, rows: int, steps: int) -> float:
    """Milliseconds a step, prefill apart."""
    caches = [KVCache() for _ in model.network.layers]
    prompts = mx.array([[(row * 7919 + i * 104729) % 2000 for i in range(PROMPT)]
                        for row in range(rows)])  # fmt: skip
    sampled = Sampled(kind, rows)
    tokens = sampled(model.network(prompts, cache=caches)[:, -1])
    mx.eval(tokens)
    began = time.perf_counter()
    for _ in range(steps):
        following = sampled(model.network(tokens[:, None], cache=caches)[:, -1])
        tokens.tolist()
        tokens = following
    mx.eval(tokens)
    return (time.perf_counter() - began) * 1e3 / steps


def take_turns(contestants: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """One round first that does not count."""
    for measure in contestants.values():
        measure()
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, measure in contestants.items():
            taken[name].append(measure())
    return taken


def chain_table(batches: list[int], repeats: int) -> None:
    columns = {
        rows: take_turns({name: chain_ms(kind, rows) for name, kind in KINDS.items()}, repeats)
        for rows in batches
    }
    print(f"| rows of {VOCAB} logits, ms | {' | '.join(map(str, batches))} |")
    print(f"| --- |{' --- |' * len(batches)}")
    for name in KINDS:
        print(f"| {name} | {' | '.join(cell(columns[rows][name]) for rows in batches)} |")


def decode_table(model: LoadedModel, steps: int, repeats: int) -> None:
    taken = take_turns(
        {name: lambda n=name: decode_ms(model, KINDS[n], ROWS, steps) for name in DECODED}, repeats
    )
    print(f"\n| SmolLM2 float32, {ROWS} rows | ms a step | throughput over greedy's |")
    print("| --- | --- | --- |")
    for name in DECODED:
        ratios = [a / b for a, b in zip(taken["greedy"], taken[name], strict=True)]
        print(f"| {name} | {cell(taken[name])} | {statistics.median(ratios):.2f} |")


def cell(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def loaded(work: Path) -> LoadedModel:
    options = {
        "path": str(dense_checkpoint(work)), "precision": "float32", "batch": ROWS,
        "device": "auto", "train_window": 8192, "fuse_projections": "off",
        "weight_materialization": "eager",
    }  # fmt: skip
    return load_model(options, lambda step, fraction: None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=["chain", "decode"],
                        choices=["chain", "decode"])  # fmt: skip
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--steps", type=int, default=8, help="decode steps a turn")
    parser.add_argument("--work", type=Path, default=Path(".cache/bench"), help="work folder")
    args = parser.parse_args()
    print(f"{mx.default_device()}, {args.repeats} repeats: median (lowest-highest)\n", flush=True)
    if "chain" in args.parts:
        chain_table(args.batches, args.repeats)
    if "decode" in args.parts:
        decode_table(loaded(args.work), args.steps, args.repeats)


if __name__ == "__main__":
    main()
