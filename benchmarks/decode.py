"""Decode speed over HTTP, as ratios within one run.

    python benchmarks/decode.py [--repeats 5] [--tokens 64] [--streams 1 4] [--json FILE]

Three contestants hold the same dense float32 SmolLM2 and use the same BLAS: ours (the program,
over HTTP), a bare greedy loop over the same model in a process of its own, and
`mlx_lm.server`. They take turns, only one works at a time, and the table gives medians of the
repeats, their spread, and the ratios. Decode rate: tokens that arrived in the time when all
streams were decoding, over that time; prefill is outside of it.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench_clients import decode_rate
from bench_contestants import BareLoop, HttpServer, our_command, peer_command
from bench_model import dense_checkpoint

Measure = Callable[[int], float]
OURS, BARE, PEER = "mlxcel", "bare loop", "mlx_lm.server"


def main() -> int:
    args = _arguments()
    checkpoint = dense_checkpoint(args.work)
    print(f"model {checkpoint}, float32; {os.cpu_count()} cores; {sys.version.split()[0]}")
    with ExitStack() as stack:
        ours = stack.enter_context(HttpServer(our_command(checkpoint)))
        peer = stack.enter_context(HttpServer(peer_command(checkpoint)))
        bare = stack.enter_context(BareLoop(checkpoint))
        contestants: dict[str, Measure] = {
            OURS: lambda n: decode_rate(ours.url, n, args.tokens),
            BARE: lambda n: bare.rate(n, args.tokens),
            PEER: lambda n: decode_rate(peer.url, n, args.tokens),
        }
        rates = _take_turns(contestants, args.streams, args.repeats)
    print(_table(rates, args.streams))
    if args.json is not None:
        args.json.write_text(json.dumps({f"{k[0]}/{k[1]}": v for k, v in rates.items()}, indent=1))
    return 0


def _take_turns(
    contestants: dict[str, Measure], streams: list[int], repeats: int
) -> dict[tuple[str, int], list[float]]:
    rates: dict[tuple[str, int], list[float]] = {}
    for name, measure in contestants.items():  # one round that does not count
        measure(max(streams))
        print(f"warm: {name}", file=sys.stderr)
    for repeat in range(repeats):
        for count in streams:
            for name, measure in contestants.items():
                rate = measure(count)
                rates.setdefault((name, count), []).append(rate)
                print(
                    f"repeat {repeat + 1}/{repeats}: {name}, {count} streams: {rate:.1f} tokens/s",
                    file=sys.stderr,
                )
    return rates


def _table(rates: dict[tuple[str, int], list[float]], streams: list[int]) -> str:
    lines = [
        f"\n{'streams':>7}  {OURS + ' tok/s':>20}  {BARE + ' tok/s':>20}  "
        f"{PEER + ' tok/s':>21}  {'ours/bare':>9}  {'ours/peer':>9}"
    ]
    for count in streams:
        cells = [_cell(rates[name, count]) for name in (OURS, BARE, PEER)]
        ours = rates[OURS, count]
        lines.append(
            f"{count:>7}  {cells[0]:>20}  {cells[1]:>20}  {cells[2]:>21}  "
            f"{_ratio(ours, rates[BARE, count]):>9.2f}  {_ratio(ours, rates[PEER, count]):>9.2f}"
        )
    lines.append("median (lowest-highest); ratios are medians of the ratios within a repeat")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="answer tokens of each stream")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--json", type=Path, help="write every single rate there")
    parser.add_argument("--work", type=Path, default=Path(".cache/bench"), help="work folder")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
