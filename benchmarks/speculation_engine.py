"""What drafting is worth in the engine, without HTTP, on any backend, as ratios within one run.

    python benchmarks/speculation_engine.py --model FOLDER | --shape 0.6b
        [--parts cost rates misses edits] [--batches 1 2 4] [--repeats 3] [--json FILE]

The model is made to say a given text (`bench_scripted`), by forwards that do all their work; a
drafter that knows the text proposes each token rightly with a given probability. Modes take turns,
the plain engine among them; tables give medians of the ratios to the plain run of the same turn.

`cost`: a round of k proposals of which none comes true, over a plain step; what it takes more than
one step is what must come true in it, in tokens a row, so that it pays. `rates`: tokens a second
over plain by the share that comes true, at a fixed number of proposals and under a governor.
`misses`: a drafter that is always wrong under each governor, by windows of 32 tokens. `edits`: a
text said again with one word changed, and prompt lookup as it is.
"""

import argparse
import json
import logging
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bench_blas  # noqa: F401  # isort: skip
import mlx.core as mx
from bench_edits import edits_of
from bench_runs import PLAIN, Bench, Mode, Ran, Work
from engine_decode import SHAPES, random_model

from mlxcel.weights.fuse import fuse_projections
from mlxcel.weights.load import LoadedModel, current_backend, load_model
from mlxcel.worker.precision import Backend

WINDOW = 32
"""Tokens of a row."""
SETTLING = 32
"""Tokens of a row before a governed run is timed."""
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
LOOKUP = {"kind": "prompt_lookup", "ngram_min": 2, "ngram_max": 3, "max_draft": 7}


@dataclass(frozen=True, slots=True)
class Turns:
    """The runs of some modes on the same work, turn by turn."""

    ran: Mapping[str, Sequence[Ran]]

    def over_plain(self, name: str, measure: Callable[[Ran], float]) -> list[float]:
        pairs = zip(self.ran[name], self.ran["plain"], strict=True)
        return [measure(one) / measure(plain) for one, plain in pairs]

    def speed(self, name: str) -> list[float]:
        return self.over_plain(name, lambda ran: ran.tokens_per_s)

    def counts(self, name: str) -> tuple[int, int, int]:
        ran = self.ran[name]
        return (
            sum(one.rounds for one in ran),
            sum(one.proposed for one in ran),
            sum(one.accepted for one in ran),
        )


class Session:
    """One model, and what has been found out so far."""

    def __init__(self, model: LoadedModel, args: argparse.Namespace) -> None:
        self.model = model
        self.args = args
        self.policy = "gated" if model.backend is Backend.CUDA else "graded"
        self.found: dict[str, Any] = {}
        self._bench = Bench(model, CLOCKS[args.clock])
        self._began_s = time.monotonic()

    def work(self, rows: int, tokens: int) -> Work:
        """Prompts of unequal length, as rows have in life, and answers without sense."""
        prompts = [self.args.prompt + 7 * n for n in range(rows)]
        dice = random.Random(rows)
        vocab = range(2, self.model.vocab_size)
        texts = [dice.choices(vocab, k=prompt + tokens) for prompt in prompts]
        return Work(texts=texts, prompts=prompts)

    def turns(self, what: str, modes: Mapping[str, Mode], work: Work, **how: Any) -> Turns:
        ran: dict[str, list[Ran]] = {name: [] for name in ("plain", *modes)}
        for turn in range(self.args.repeats):
            self.progress(f"{what}, turn {turn + 1} of {self.args.repeats}")
            for name, mode in {"plain": PLAIN, **modes}.items():
                ran[name].append(self._bench.run(mode, work, seed=turn, **how))
        return Turns(ran)

    def warm(self, rows: int) -> None:
        """Every width once: a GPU compiles for each."""
        most = max(self.args.widths)
        mode = Mode(governor="climbing", most=most)
        self._bench.run(mode, self.work(rows, most + 8), tokens=most)

    def save(self, part: str, rows: int, told: Any) -> None:
        self.found.setdefault(part, {})[rows] = told
        if self.args.json:
            self.args.json.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")

    def progress(self, text: str) -> None:
        print(f"  [{time.monotonic() - self._began_s:6.1f} s] {text}", file=sys.stderr, flush=True)


def cost(session: Session, rows: int) -> None:
    args = session.args
    modes = {str(width): Mode(governor="fixed", most=width) for width in args.widths}
    work = session.work(rows, args.tokens + 16)
    turns = session.turns(
        f"cost, {rows} rows", modes, work, skip=4, tokens=args.tokens, most_s=args.most_s
    )
    plain_ms = statistics.median(ran.tick_ms for ran in turns.ran["plain"])
    line, told = [f"{rows}", f"{plain_ms:.2f}"], {}
    for width in args.widths:
        ratios = turns.over_plain(str(width), lambda ran: ran.tick_ms)
        told[width] = ratios
        line.append(f"{_spread(ratios)} -> {max(0.0, statistics.median(ratios) - 1):.1f}")
    session.save("cost", rows, {"plain_ms": plain_ms, "ratios": told})
    _row("cost", ["rows", "step ms", *(f"k = {width}" for width in args.widths)], line)


def rates(session: Session, rows: int) -> None:
    """A governed run begins to be timed when the governor has seen something."""
    args, told = session.args, {}
    governors = {"fixed": Mode(governor="fixed")} | {
        f"{policy}{', weighed' * weighs}": Mode(governor=policy, is_weighed=weighs)
        for policy in args.policies or [session.policy]
        for weighs in (False, True)
    }
    work = session.work(rows, SETTLING + 3 * args.tokens + 64)
    for governor, mode in governors.items():
        for width in args.widths:
            modes = {f"{rate:g}": replace(mode, most=width, rate=rate) for rate in args.rates}
            turns = session.turns(
                *(f"rates, {rows} rows, {governor} {width}", modes, work),
                skip=4 if governor == "fixed" else SETTLING,
                tokens=args.tokens,
                most_s=args.most_s,
            )
            found = {name: turns.speed(name) for name in modes}
            told[f"{governor} {width}"] = {
                name: {"speed": speed, "counts": turns.counts(name)}
                for name, speed in found.items()
            }
            head = ["rows", "governor", "k", *(f"q = {name}" for name in modes)]
            _row("rates", head, [f"{rows}", governor, f"{width}", *map(_spread, found.values())])
            session.save("rates", rows, told)


def misses(session: Session, rows: int) -> None:
    args = session.args
    modes = {
        f"{name}{', weighed' * is_weighed}": Mode(governor=name, most=7, is_weighed=is_weighed)
        for name in ("graded", "gated")
        for is_weighed in (False, True)
    }
    tokens = WINDOW * args.windows
    work = session.work(rows, tokens + 16)
    turns = session.turns(f"misses, {rows} rows", modes, work, tokens=tokens)
    told = {}
    for name in modes:
        pairs = zip(turns.ran[name], turns.ran["plain"], strict=True)
        windows = [
            [
                one / plain
                for one, plain in zip(
                    a.window_ms(WINDOW * rows), b.window_ms(WINDOW * rows), strict=False
                )
            ]
            for a, b in pairs
        ]
        by_window = list(zip(*windows, strict=False))
        settled = [statistics.fmean(run[2:]) for run in windows]
        told[name] = {"windows": windows, "counts": turns.counts(name)}
        starts = [f"{WINDOW * n}-" for n in range(args.windows)]
        head = ["rows", "governor", *starts, "settled", "rounds of a row"]
        per_row = f"{turns.counts(name)[0] / args.repeats / rows:.1f}"
        line = [f"{rows}", name, *(f"{statistics.median(one):.2f}" for one in by_window)]
        _row("misses", head, [*line, _spread(settled), per_row])
    session.save("misses", rows, told)


def edits(session: Session, rows: int) -> None:
    args, work = session.args, edits_of(rows, session.model)
    modes = {
        f"{policy}{', weighed' * weighs}, {most}": Mode(
            draft={**LOOKUP, "max_batch": most, "policy": policy, "weighs_time": weighs}
        )
        for policy in args.policies or [session.policy]
        for weighs in (False, True)
        for most in args.batches
    }
    turns = session.turns(f"edits, {rows} rows", modes, work)
    plain = statistics.median(ran.tokens_per_s for ran in turns.ran["plain"])
    told: dict[str, Any] = {"plain": plain}
    for name in modes:
        rounds, proposed, accepted = turns.counts(name)
        speed = turns.speed(name)
        told[name] = {"speed": speed, "counts": (rounds, proposed, accepted)}
        counts = [f"{n / args.repeats:.0f}" for n in (rounds, proposed, accepted)]
        head = [
            "rows",
            "policy, max_batch",
            "rounds",
            "proposed",
            "came true",
            "tokens/s",
            "of plain",
        ]
        median = statistics.median(ran.tokens_per_s for ran in turns.ran[name])
        _row("edits", head, [f"{rows}", name, *counts, f"{median:.1f}", _spread(speed)])
    session.save("edits", rows, told)


PARTS: Mapping[str, Callable[[Session, int], None]] = {
    "cost": cost,
    "rates": rates,
    "misses": misses,
    "edits": edits,
}


def main() -> None:
    args = _arguments()
    # Random weights have no tokenizer, which every worker would say.
    logging.getLogger("mlxcel").setLevel(logging.ERROR)
    session = Session(_model(args), args)
    print(f"{mx.default_device()}, mlx {mx.__version__}, {args.model or args.shape}, "
          f"prompt {args.prompt}, {args.repeats} turns; median (lowest-highest)")  # fmt: skip
    is_warm = session.model.backend is Backend.CPU
    for part in args.parts:
        for rows in args.batches:
            if not is_warm:
                session.warm(rows)
            PARTS[part](session, rows)
        is_warm = True


_seen_heads: list[str] = []


def _row(part: str, head: Sequence[str], cells: Sequence[str]) -> None:
    """A line of a table that grows as the numbers come."""
    if part not in _seen_heads:
        _seen_heads.append(part)
        print(f"\n{part}\n\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    print(f"| {' | '.join(cells)} |", flush=True)


def _spread(values: Sequence[float]) -> str:
    middle = f"{statistics.median(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f}-{max(values):.2f})"


def _model(args: argparse.Namespace) -> LoadedModel:
    if args.model is None:
        on_cpu = current_backend() is Backend.CPU
        model = random_model(args.shape, mx.float32 if on_cpu else mx.bfloat16)
        if model.backend is Backend.CUDA:
            fuse_projections(model.network)
        return model
    options = {
        "path": str(args.model), "precision": "auto", "batch": 4, "device": "auto",
        "train_window": 8192, "fuse_projections": "auto", "weight_materialization": "eager",
    }  # fmt: skip
    return load_model(options, lambda step, share: None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", type=Path)
    which.add_argument("--shape", choices=sorted(SHAPES))
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--widths", nargs="+", type=int, default=[2, 4, 7, 15])
    parser.add_argument("--rates", nargs="+", type=float, default=[0, 0.25, 0.5, 0.75, 0.9, 1])
    parser.add_argument("--repeats", type=int, default=3, help="turns")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the shortest")
    parser.add_argument("--tokens", type=int, default=64, help="of a row, timed")
    parser.add_argument(
        "--policies",
        nargs="+",
        choices=["graded", "gated"],
        help="of rates and edits; by default the device's",
    )
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--most-s", type=float, default=5.0, help="of a run of cost or rates")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: where a busy machine has no GPU"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
