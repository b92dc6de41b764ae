"""Runs with KV that can be told apart, tiers on a folder, and waiting for their threads."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlxcel.engine.cache.disk.tier import DiskRules, DiskTier, Identity, Run, Unsound, arrived
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.segment import Layers

IDENTITY = Identity(model="m" * 64, kv_mode="fp16", adapters="")
HEADS, WIDTH, LAYERS = 2, 8, 3
LONG_S = 30.0


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def key(session: str = "anybody", **other: Any) -> CacheKey:
    parts: dict[str, Any] = {
        "session": session,
        "lora": (),
        "template": b"t" * 32,
        "tool_choice": "__absent__",
        "tools": bytes(32),
        "media": bytes(32),
    }
    return CacheKey(**(parts | other))


def run(tokens: int, *, start: int = 0, first: int = 0, session: str = "anybody") -> Run:
    """Tokens first, first + 1, ... of which `start` are the prefix."""
    ids = tuple(range(first, first + start + tokens))
    return Run(key=key(session), prefix=ids[:start], tokens=ids[start:])


def layers(tokens: int, *, seed: int = 0, dtype: mx.Dtype = mx.float16) -> Layers:
    made = np.random.default_rng(seed).normal(size=(LAYERS, 2, 1, HEADS, tokens, WIDTH))
    return tuple(tuple(mx.array(part).astype(dtype) for part in layer) for layer in made)


def same(one: Layers, other: Layers) -> bool:
    """To the bit."""
    pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
    return all(
        a.dtype == b.dtype and a.shape == b.shape and bool(mx.array_equal(a, b)) for a, b in pairs
    )


def rules(folder: Path, **changed: Any) -> DiskRules:
    given = {"capacity_bytes": 1 << 30, "min_free_bytes": 0, "ttl_s": 0.0} | changed
    return DiskRules(folder=folder, **given)


@contextmanager
def tier(
    folder: Path, *, identity: Identity = IDENTITY, clock: Clock | None = None, **changed: Any
) -> Iterator[DiskTier]:
    """Open, without looking at what is there; closed in the end. Rules and the constructor's own
    arguments by name."""
    own = {name: changed.pop(name) for name in ("free_bytes", "queue_bytes") if name in changed}
    made = DiskTier(rules(folder, **changed), identity, clock=clock or time.time, **own)
    made.open(silent)
    try:
        yield made
    finally:
        made.close(LONG_S)


def silent(message: str, fraction: float | None) -> None:
    pass


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def drained(made: DiskTier) -> list[Any]:
    """Its events once nothing waits to be written."""
    wait_for(lambda: made.stats()["queue_bytes"] == 0)
    return list(made.events())


def stored(folder: Path, **given: Any) -> list[Run]:
    """What a server that starts there finds."""
    made = DiskTier(rules(folder), given.pop("identity", IDENTITY), **given)
    try:
        return [found.run for found in made.open(silent)]
    finally:
        made.close(LONG_S)


def put(made: DiskTier, what: Run, *, seed: int = 0) -> str:
    """Written, and on disk."""
    name = made.write(what, layers(len(what.tokens), seed=seed))
    wait_for(lambda: made.stats()["queue_bytes"] == 0)
    return name


def fetched(made: DiskTier, name: str) -> Layers | Unsound:
    (read,) = made.read([name]).result(LONG_S)
    return read if isinstance(read, Unsound) else arrived(read).layers
