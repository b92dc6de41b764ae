"""What the prompt cache and the KV modes cost and save in the engine, without HTTP, on any backend.

    python benchmarks/engine_warm.py [--shape 0.6b] [--parts ttft churn modes] [--repeats 3]

Random weights in a Qwen3 shape. `ttft`: time to the first token of a prompt that is read cold, the
same with all but 32 tokens kept in memory, and on disk by a worker that is started anew. `churn`:
requests that come and go with prompts of their own, cache on beside off: what keeping costs those
it never helps. `modes`: decode speed and KV bytes of rows under each KV mode, beside full KV.
"""

import argparse
import array
import statistics
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from engine_decode import CACHE, prompt_of, random_model, worker_of

from mlxcel.core.cache import CacheTag
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.chat import ChatWorker
from mlxcel.link.messages import RowFinished, RowTokens, Submit
from mlxcel.weights.load import LoadedModel

MODES: dict[str, dict[str, Any]] = {
    "fp16": {},
    "int8": {"mode": "int8"},
    "fp16+turbo4": {"mode": "fp16+turbo4"},
    "fp16+turbo3": {"mode": "fp16+turbo3"},
    "turbo4-delegated": {"mode": "turbo4-delegated"},
    "uniform-8": {"bits": 8},
    "uniform-4": {"bits": 4},
}


def submit(name: str, prompt: list[int], tokens: int, *, keeps: bool = True) -> Submit:
    return Submit(
        id=name,
        tokens=array.array("i", prompt).tobytes(),
        sampling=SamplingParams(temperature=0),
        max_tokens=tokens,
        eos_ids=(-1,),
        cache=CacheTag() if keeps else None,
    )


def first_token_s(worker: ChatWorker, message: Submit) -> float:
    began, inbox, first = time.perf_counter(), [message], 0.0
    while True:
        frame, sleep_s = worker.tick(inbox)
        inbox = []
        for event in frame.events if frame is not None else ():
            if isinstance(event, RowTokens) and not first:
                first = time.perf_counter() - began
            if isinstance(event, RowFinished):
                until = time.monotonic() + 1.0
                while worker.tick([])[1] is not None and time.monotonic() < until:
                    pass
                return first
        if sleep_s:
            time.sleep(sleep_s)


def ttft(model: LoadedModel, lengths: list[int], repeats: int) -> None:
    print("\n| prompt | cold s | memory s | disk s | memory/cold | disk/cold |")
    print("| --- | --- | --- | --- | --- | --- |")
    for length in lengths:
        runs = [_ttft(model, length, n) for n in range(repeats)]
        cold, memory, disk = (statistics.median(run[i] for run in runs) for i in range(3))
        shares = [statistics.median(run[i] / run[0] for run in runs) for i in (1, 2)]
        print(
            f"| {length} | {cold:.4f} | {memory:.4f} | {disk:.4f} | {shares[0]:.3f} | "
            f"{shares[1]:.3f} |",
            flush=True,
        )


def _ttft(model: LoadedModel, length: int, seed: int) -> tuple[float, float, float]:
    prompt = prompt_of(length, seed + 1)
    with tempfile.TemporaryDirectory() as folder:
        disk = {
            "path": folder, "capacity_bytes": 1 << 36, "min_free_bytes": 0, "ttl_secs": 0,
        }  # fmt: skip
        worker = worker_of(model, 4, {**CACHE, "disk": disk})
        first_token_s(worker, submit("warm-up", prompt_of(64, 99), 2, keeps=False))
        cold = first_token_s(worker, submit("cold", prompt, 2))
        memory = first_token_s(worker, submit("memory", [*prompt, 5, 6, 7], 2))
        worker.close()
        worker = worker_of(model, 4, {**CACHE, "disk": disk})
        first_token_s(worker, submit("warm-up", prompt_of(64, 98), 2, keeps=False))
        from_disk = first_token_s(worker, submit("disk", [*prompt, 5, 6, 7], 2))
        worker.close()
    return cold, memory, from_disk


def churn(model: LoadedModel, rows: int, requests: int, repeats: int) -> None:
    rates: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(repeats + 1):
        for keeps in (True, False):
            rate = _churn(model, rows, requests, keeps=keeps)
            if repeat:
                rates[keeps].append(rate)
    ratio = statistics.median(a / b for a, b in zip(rates[True], rates[False], strict=True))
    on, off = statistics.median(rates[True]), statistics.median(rates[False])
    print(f"\nchurn, {rows} rows, {requests} requests of 512 + 64 tokens, answer tokens/s:")
    print(f"{on:.0f} with the cache, {off:.0f} without, ratio {ratio:.3f}", flush=True)


def _churn(model: LoadedModel, rows: int, requests: int, *, keeps: bool) -> float:
    worker = worker_of(model, rows)
    messages = [submit(str(i), prompt_of(512, i), 64, keeps=keeps) for i in range(requests)]
    began, inbox, ended = time.perf_counter(), messages, 0
    while ended < requests:
        frame, _ = worker.tick(inbox)
        inbox = []
        if frame is not None:
            ended += sum(isinstance(event, RowFinished) for event in frame.events)
    rate = requests * 64 / (time.perf_counter() - began)
    worker.close()
    return rate


def modes(model: LoadedModel, rows: int, length: int, steps: int, repeats: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in MODES}
    held: dict[str, int] = {}
    for _ in range(repeats):
        for name, asked in MODES.items():
            rate, held[name] = _mode(model, rows, length, steps, {"kv": {**CACHE["kv"], **asked}})
            rates[name].append(rate)
    print(f"\n{rows} rows of {length} tokens")
    print("| mode | KV bytes | of full | tokens/s | of full |\n| --- | --- | --- | --- | --- |")
    for name, values in rates.items():
        ratio = statistics.median(a / b for a, b in zip(values, rates["fp16"], strict=True))
        share = held[name] / held["fp16"]
        print(
            f"| {name} | {held[name]} | {share:.2f} | {statistics.median(values):.0f} | "
            f"{ratio:.2f} |",
            flush=True,
        )


def _mode(
    model: LoadedModel, rows: int, length: int, steps: int, cache: Mapping[str, Any]
) -> tuple[float, int]:
    worker = worker_of(model, rows, {**CACHE, **cache})
    worker.tick([submit(str(i), prompt_of(length, i), 10_000, keeps=False) for i in range(rows)])
    while len(worker._scheduler._decoder.rows) < rows:
        worker.tick([])
    for _ in range(4):
        worker.tick([])
    began = time.perf_counter()
    for _ in range(steps):
        worker.tick([])
    rate = rows * steps / (time.perf_counter() - began)
    held = worker._scheduler.memory["kv_bytes"]
    worker.close()
    return rate, held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="0.6b")
    parser.add_argument("--parts", nargs="+", default=["ttft", "churn", "modes"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096, 16384])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print(f"{mx.default_device()}, Qwen3 {args.shape} shape, bf16 random weights")
    model = random_model(args.shape, mx.bfloat16)
    if "ttft" in args.parts:
        ttft(model, args.lengths, args.repeats)
    if "churn" in args.parts:
        churn(model, args.rows, args.requests, args.repeats)
    if "modes" in args.parts:
        modes(model, args.rows, args.length, 48, args.repeats)


if __name__ == "__main__":
    main()
