"""A cache by columns over a folder, and a disk that does not answer."""

import os
from collections.abc import Callable
from pathlib import Path

from mlxcel.core.cache import CacheTag
from mlxcel.engine.cache.columns import ColumnKeeping
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.disk.tier import DiskTier
from mlxcel.engine.cache.segment import Segment
from mlxcel.engine.cache.spill import Fetch, Spill
from mlxcel.engine.cache.store import StoreRules
from mlxcel.engine.cache.worth import Worth
from mlxcel.engine.kv.modes import KVPlan
from tests.engine.cache.disk_runs import IDENTITY, LONG_S, Clock, key, layers, rules, silent
from tests.engine.cache.disk_runs import wait_for as wait

TAG = CacheTag(session="anybody")
PREFIX = tuple(range(64))
ONE, TWO = (*PREFIX, *range(100, 164)), (*PREFIX, *range(200, 264))


class Shop:
    """A cache by columns over a folder."""

    def __init__(self, folder: Path, **changed: object) -> None:
        self.clock = Clock(0.0)
        store = StoreRules(
            capacity_bytes=None,
            max_entries=64,
            ttl_s=60.0,
            min_prefix=32,
            is_apc=True,
            block=16,
            floor=32,
        )
        self.keeping = ColumnKeeping(store, Counters(), plan=KVPlan())
        self.tier = DiskTier(rules(folder), IDENTITY, **changed)  # type: ignore[arg-type]
        self.worth = Worth(token_bytes=1)
        self.spill = Spill(self.keeping.store, self.tier, self.worth, clock=self.clock)
        self.keeping.spill = self.spill
        self.spill.open(silent)

    def keep(self, tokens: tuple[int, ...]) -> None:
        """Not yet written."""
        self.keeping.put(key(), tokens, Segment(layers(len(tokens)), len(tokens)), "anybody")

    def turn(self) -> None:
        self.keeping.begin_turn()
        self.keeping.end_turn(is_idle=True)

    def settle(self) -> None:
        wait(lambda: not self.tier.stats()["queue_bytes"])
        self.keeping.begin_turn()
        self.keeping.check()

    def write(self, tokens: tuple[int, ...]) -> None:
        self.keep(tokens)
        self.turn()
        self.settle()

    def fetch(self, tokens: tuple[int, ...]) -> Fetch | None:
        return self.keeping.fetch(key(), TAG, (*tokens, 9))

    def brought(self, tokens: tuple[int, ...]) -> int:
        """Tokens that come from disk into memory."""
        fetch = self.fetch(tokens)
        if fetch is None:
            return 0
        fetch.read.result(LONG_S)
        return self.keeping.fetched(fetch)

    def close(self) -> None:
        self.keeping.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kv.safetensors"), key=lambda path: int(path.name.split("-")[1]))


def after_a_restart(folder: Path, tokens: tuple[int, ...]) -> int:
    made = Shop(folder)
    try:
        return made.brought(tokens)
    finally:
        made.close()


def clogged(path: Path) -> Callable[[], None]:
    """Reading there does not come to an end until what is returned is called."""
    path.unlink()
    os.mkfifo(path)

    def release() -> None:
        writing = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        path.unlink()
        os.close(writing)

    return release
