"""Many streams at once from a scripted engine: what the front adds to a token, and what it takes.

    python benchmarks/streams.py [--streams 1 16 64] [--rate 50] [--seconds 10] [--repeats 3]
                                 [--profile FILE.svg]

`model=echo` says `--rate` tokens a second on each stream, as a model would that has all the time in
the world: whatever comes later than that was added by the worker, the front or this client. The
client reads raw sockets in a process of its own. For each number of streams: how much later than
its time a token came after the one before it (median, 99th percentile, worst), the share of one
core that front, worker and client took, and the memory of front and worker. `--profile` records the
front with py-spy while the largest number runs.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
from bench_contestants import HttpServer

WORDS = "x" * 1500
WARM_TOKENS = 5
"""Of each stream, left out: they come while others still connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One run. Times in milliseconds, shares of one core, memory in MiB."""

    late: list[float]
    front: float
    worker: float
    client: float
    front_mib: float
    worker_mib: float
    rate: float
    """Tokens a second over all streams."""


def main() -> int:
    args = _arguments()
    widest = max(args.streams)
    command = [
        *(sys.executable, "-m", "mlxcel", "model=echo", f"scheduler.parallel={widest}"),
        *(f"engine.delay_ms={1000 / args.rate}", "scheduler.max_queue_depth=128"),
    ]
    runs: dict[int, list[Taken]] = {count: [] for count in args.streams}
    with HttpServer(command) as server:
        front = psutil.Process(server.pid)
        for repeat in range(args.repeats):
            for count in args.streams:
                is_profiled = args.profile and repeat == 0 and count == widest
                profile = args.profile if is_profiled else None
                taken = _run(server.url, front, count, args, profile)
                runs[count].append(taken)
                print(f"repeat {repeat + 1}: {_row(count, [taken])}", file=sys.stderr)
    print(_HEAD)
    for count in args.streams:
        print(_row(count, runs[count]))
    print("medians of the repeats; 99th percentile and worst over all of them")
    return 0


def _run(
    url: str, front: psutil.Process, count: int, args: argparse.Namespace, profile: Path | None
) -> Taken:
    worker = next(iter(front.children(recursive=True)))
    mine, theirs = get_context("spawn").Pipe()
    tokens = int(args.rate * args.seconds)
    client = get_context("spawn").Process(
        target=_client, args=(theirs, url, count, tokens, 1000 / args.rate)
    )
    client.start()
    mine.recv()
    processes = [front, worker, psutil.Process(client.pid)]
    before, began_s = [_cpu_s(one) for one in processes], time.monotonic()
    watcher = _profiler(front.pid, profile, args.seconds)
    mine.send("go")
    late = mine.recv()
    took_s = time.monotonic() - began_s
    shares = [(_cpu_s(p) - b) / took_s for p, b in zip(processes, before, strict=True)]
    mib = [process.memory_info().rss / 2**20 for process in (front, worker)]
    mine.send("end")
    client.join()
    if watcher is not None:
        watcher.wait()
    return Taken(
        late=late,
        front=shares[0],
        worker=shares[1],
        client=shares[2],
        front_mib=mib[0],
        worker_mib=mib[1],
        rate=count * tokens / took_s,
    )


def _profiler(pid: int, file: Path | None, seconds: float) -> "subprocess.Popen[bytes] | None":
    if file is None:
        return None
    tool = str(Path(sys.executable).with_name("py-spy"))
    command = [tool, "record", "-p", str(pid), "-d", str(int(seconds)), "-o", str(file)]
    return subprocess.Popen([*command, "-f", "raw" if file.suffix == ".txt" else "flamegraph"])


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _client(pipe: Connection, url: str, count: int, tokens: int, interval_ms: float) -> None:
    pipe.send("ready")
    pipe.recv()
    pipe.send(asyncio.run(_streams(url, count, tokens, interval_ms)))
    pipe.recv()


async def _streams(url: str, count: int, tokens: int, interval_ms: float) -> list[float]:
    """How late each token came, in milliseconds."""
    host, port = url.removeprefix("http://").split(":")
    told = await asyncio.gather(
        *(_stream(host, int(port), tokens, interval_ms) for _ in range(count))
    )
    return [late for one in told for late in one]


async def _stream(host: str, port: int, tokens: int, interval_ms: float) -> list[float]:
    message = {"role": "user", "content": WORDS}
    body = json.dumps(
        {"model": "echo", "messages": [message], "stream": True, "max_tokens": tokens}
    ).encode()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    arrived: list[float] = []
    async for line in reader:
        if b'"content":"x' in line:
            arrived.append(time.monotonic())
    writer.close()
    gaps = zip(arrived[WARM_TOKENS:], arrived[WARM_TOKENS + 1 :], strict=False)
    return [(later - sooner) * 1000 - interval_ms for sooner, later in gaps]


_HEAD = (
    f"{'streams':>7}  {'tokens/s':>8}  {'late p50 ms':>11}  {'p99 ms':>7}  {'worst ms':>8}  "
    f"{'front':>6}  {'worker':>6}  {'client':>6}  {'front MiB':>9}  {'worker MiB':>10}"
)


def _row(count: int, runs: Sequence[Taken]) -> str:
    late = sorted(value for run in runs for value in run.late)

    def at(share: float) -> float:
        return late[min(len(late) - 1, int(share * len(late)))]

    def middle(name: str) -> float:
        return statistics.median(getattr(run, name) for run in runs)

    return (
        f"{count:>7}  {middle('rate'):>8.0f}  "
        f"{at(0.5):>11.2f}  {at(0.99):>7.2f}  {late[-1]:>8.1f}  "
        f"{middle('front'):>6.0%}  {middle('worker'):>6.0%}  {middle('client'):>6.0%}  "
        f"{middle('front_mib'):>9.0f}  {middle('worker_mib'):>10.0f}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rate", type=float, default=50.0, help="tokens a second on each stream")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", type=Path, help="a flame graph (.svg) or raw stacks (.txt)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
