"""What drafting is worth, over HTTP, as ratios within one run.

    python benchmarks/speculation.py [--repeats 3] [--tokens 96] [--model FOLDER --drafter FOLDER]

`copy`: a paragraph that stands in the prompt three times is begun anew, as in edits and quotations;
`loose`: few words without sense, gone on with at temperature 1: what stood there before comes again
now and then. Each with one request and with two at once.
Tokens per second of all requests, over those of the same work without a drafter.
"""

import argparse
import json
import statistics
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_contestants import HttpServer, our_command
from bench_model import dense_checkpoint

PARAGRAPH = (
    "The harbour master keeps three books. In the first he writes which ships came in, in the "
    "second which ones left, and in the third what the weather was like on both occasions. "
)
SENSELESS = "seven blue north of seven old blue of north seven of old old north blue seven of blue "
WORK: dict[str, tuple[str, dict[str, Any]]] = {
    "copy": (PARAGRAPH * 3 + PARAGRAPH[:20], {"temperature": 0}),
    "loose": (SENSELESS * 6, {"temperature": 1.0, "ignore_eos": True}),
}


@dataclass(frozen=True, slots=True)
class Ran:
    tokens_per_s: float
    proposed: int
    accepted: int
    rounds: int


def main() -> int:
    args = _arguments()
    checkpoint = args.model or dense_checkpoint(args.work)
    kinds = {"none": ["draft=none"], "prompt-lookup": ["draft=prompt_lookup"]}
    if args.drafter:
        kinds["full-model"] = ["draft=full_model", f"draft.path={args.drafter}"]
    print(f"model {checkpoint}; {sys.version.split()[0]}")
    told: dict[tuple[str, str, int], Ran] = {}
    for kind, words in kinds.items():
        with HttpServer([*our_command(checkpoint), *words]) as server:
            _ask(server.url, "hello", 8, {})
            for work in WORK:
                for rows in (1, 2):
                    told[kind, work, rows] = _measured(server.url, work, rows, args)
    print(_table(told, kinds))
    return 0


def _measured(url: str, work: str, rows: int, args: argparse.Namespace) -> Ran:
    ran = [_run(url, work, rows, args.tokens, repeat) for repeat in range(args.repeats)]
    middle = statistics.median(one.tokens_per_s for one in ran)
    return next(one for one in ran if one.tokens_per_s == middle)


def _run(url: str, work: str, rows: int, tokens: int, repeat: int) -> Ran:
    """The prompt is read beforehand: only what is said counts."""
    prompt, fields = WORK[work]
    with ThreadPoolExecutor(rows) as pool:
        seeds = [1000 * repeat + row for row in range(rows)]
        _ask(url, prompt, 1, fields)
        began = time.perf_counter()
        answers = list(pool.map(lambda n: _ask(url, prompt, tokens, fields | {"seed": n}), seeds))
        took = time.perf_counter() - began
    timings = [answer["timings"] for answer in answers]
    return Ran(
        tokens_per_s=sum(answer["tokens_predicted"] for answer in answers) / took,
        proposed=sum(one.get("draft_n", 0) for one in timings),
        accepted=sum(one.get("draft_n_accepted", 0) for one in timings),
        rounds=sum(one.get("draft_rounds", 0) for one in timings),
    )


def _ask(url: str, prompt: str, tokens: int, fields: dict[str, Any]) -> dict[str, Any]:
    body = {"prompt": prompt, "n_predict": tokens, **fields}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        answer: dict[str, Any] = json.loads(reply.read())
    return answer


def _table(told: dict[tuple[str, str, int], Ran], kinds: dict[str, list[str]]) -> str:
    lines = [
        "| work | requests | draft | came true | rounds | tokens/s | of none |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for work in WORK:
        for rows in (1, 2):
            plain = told["none", work, rows].tokens_per_s
            for kind in kinds:
                ran = told[kind, work, rows]
                share = f"{ran.accepted} of {ran.proposed}" if ran.proposed else ""
                speed = f"{ran.tokens_per_s:.1f} | {ran.tokens_per_s / plain:.2f}"
                lines.append(f"| {work} | {rows} | {kind} | {share} | {ran.rounds} | {speed} |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="an odd number")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--drafter", type=Path)
    parser.add_argument("--work", type=Path, default=Path("bench-results"))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
