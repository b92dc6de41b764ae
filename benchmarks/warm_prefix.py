"""What the prompt cache saves, over HTTP, as ratios within one run.

    python benchmarks/warm_prefix.py [--repeats 3] [--prompt 3000] [--parts turns sharing]

`turns`: time to the first token of a conversation whose first prompt has about 3,000 tokens: cold,
its second turn, and its second turn on a server that was started again (`cache=disk`); and the
same texts read cold, which have to be equal. `sharing`: 50 conversations under one system prompt
of about 1,000 tokens, and what the cache holds then beside what they would take one by one.
"""

import argparse
import json
import shutil
import statistics
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_contestants import HttpServer, our_command
from bench_model import dense_checkpoint

WORDS = "the boat crosses a wide bay at dawn while gulls circle over nets and ropes".split()  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class Heard:
    ttft_s: float
    text: str
    cache: dict[str, Any]
    prompt_tokens: int
    answer_tokens: int
    header: str


def main() -> int:
    args = _arguments()
    checkpoint = dense_checkpoint(args.work)
    folder = args.work / "kv"
    print(f"model {checkpoint}, float32; {sys.version.split()[0]}")
    if "turns" in args.parts:
        turns = [_turns(checkpoint, folder, args.prompt, n) for n in range(args.repeats)]
        print(_turns_table(turns))
    if "sharing" in args.parts:
        print(_sharing(checkpoint, args.conversations, args.system))
    return 0


def _turns(checkpoint: Path, folder: Path, prompt: int, repeat: int) -> dict[str, Heard]:
    """One conversation on a fresh folder, and again after a restart."""
    shutil.rmtree(folder, ignore_errors=True)
    first = [{"role": "user", "content": _text(prompt, repeat)}]
    command = [*our_command(checkpoint), "cache=disk", f"cache.disk.path={folder}"]
    with HttpServer(command) as server:
        _ask(server.url, [{"role": "user", "content": "hello"}])  # what only the first one pays
        cold = _ask(server.url, first)
        second = [*first, _said(cold), {"role": "user", "content": "And then?"}]
        warm = _ask(server.url, second)
        read_cold = _ask(server.url, second, cache_prompt=False)
    with HttpServer(command) as server:
        _ask(server.url, [{"role": "user", "content": "hello"}])
        restarted = _ask(server.url, second)
    for name, heard in (("warm", warm), ("restarted", restarted)):
        same = "equal" if heard.text == read_cold.text else "DIFFERENT"
        print(f"{name}: {heard.header}; text {same} to the cold one", file=sys.stderr)
    return {"cold": cold, "read cold": read_cold, "warm": warm, "restarted": restarted}


def _turns_table(turns: list[dict[str, Heard]]) -> str:
    lines = ["", "| turn | prompt tokens | reused | TTFT s | of the cold first turn |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name in turns[0]:
        heard = [turn[name] for turn in turns]
        ratio = statistics.median(turn[name].ttft_s / turn["cold"].ttft_s for turn in turns)
        seconds = statistics.median(one.ttft_s for one in heard)
        reused = heard[0].cache["reused_tokens"]
        lines.append(
            f"| {name} | {heard[0].prompt_tokens} | {reused} | {seconds:.2f} | {ratio:.3f} |"
        )
    same = all(
        turn[name].text == turn["read cold"].text
        for turn in turns
        for name in ("warm", "restarted")
    )
    return "\n".join([*lines, f"texts equal to those read cold: {same}"])


def _sharing(checkpoint: Path, conversations: int, system: int) -> str:
    """What a token takes is read off the first conversation, and where the others part from it
    is what the server says."""
    with HttpServer(our_command(checkpoint)) as server:
        head = {"role": "system", "content": _text(system, 99)}
        kept: list[int] = []
        shared = one = 0
        for number in range(conversations):
            user = {"role": "user", "content": _text(40, number)}
            heard = _ask(server.url, [head, user], max_tokens=16)
            kept.append(heard.prompt_tokens + heard.answer_tokens - 1)
            with urllib.request.urlopen(f"{server.url}/v1/cache/stats") as answer:
                held = json.load(answer)["bytes"]
            if number == 0:
                one = held // kept[0]
            elif number == 1:
                shared = heard.cache["diverged"]["at"]
    least = one * (shared + sum(length - shared for length in kept))
    return "\n".join(
        [
            "",
            "| conversations | shared tokens | tokens in all | bytes held | one prefix + tails | "
            "ratio | of every token kept |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            f"| {conversations} | {shared} | {sum(kept)} | {held} | {least} | {held / least:.2f} | "
            f"{held / (one * sum(kept)):.3f} |",
        ]
    )


def _ask(url: str, messages: list[dict[str, str]], max_tokens: int = 24, **more: Any) -> Heard:
    body = {
        "model": "x",
        "messages": messages,
        "stream": True,
        "temperature": 0,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    began, first, text, last, usage = time.perf_counter(), 0.0, "", {}, {}
    with urllib.request.urlopen(request, timeout=600) as answer:
        header = answer.headers["X-Cache-Status"]
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            last = chunk.get("timings") or last
            said = chunk["choices"][0]["delta"].get("content") if chunk["choices"] else None
            if said and not first:
                first = time.perf_counter()
            text += said or ""
    return Heard(
        first - began,
        text,
        last["cache"],
        usage["prompt_tokens"],
        usage["completion_tokens"],
        header,
    )


def _said(heard: Heard) -> dict[str, str]:
    return {"role": "assistant", "content": heard.text}


def _text(tokens: int, seed: int) -> str:
    """About so many tokens, another text for each seed from its first word on."""
    words = [WORDS[(seed + i * (1 + seed % 5)) % len(WORDS)] for i in range(tokens)]
    return " ".join([f"{seed}:", *words])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=2950, help="words of the first prompt")
    parser.add_argument("--system", type=int, default=980, help="words of the shared system prompt")
    parser.add_argument("--conversations", type=int, default=50)
    parser.add_argument("--parts", nargs="+", default=["turns", "sharing"])
    parser.add_argument("--work", type=Path, default=Path(".cache/bench"), help="work folder")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
