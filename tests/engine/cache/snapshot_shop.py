"""A store of states with its clock and counters, and states that are cheap to make."""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, RotatingKVCache

from mlxcel.core.cache import ANONYMOUS, NO_DIGEST
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.snapshots import FoundState, SnapshotRules, SnapshotStore
from mlxcel.engine.cache.states import State, taken

COLUMN = 2 * 4
"""Bytes of a token in a window of one head and one number."""
WINDOW = 100
BLOB = 400
"""Bytes of a recurrent state."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Shop:
    """A store with its clock and counters, and what a test asks most."""

    def __init__(
        self, capacity: int | None = None, entries: int = 4096, ttl: float = 7200.0
    ) -> None:
        self.clock, self.counters = Clock(), Counters()
        rules = SnapshotRules(capacity_bytes=capacity, max_entries=entries, ttl_s=ttl)
        self.store = SnapshotStore(rules, self.counters, self.clock)

    def put(
        self, tokens: Sequence[int], origin: str = "x", key: CacheKey | None = None, **made: bool
    ) -> State:
        state = state_of(tokens, **made)
        self.store.insert(key or key_for(), tokens, state, origin=origin)
        self.store.check()
        return state

    def find(self, tokens: Sequence[int], key: CacheKey | None = None) -> FoundState:
        found = self.store.find(key or key_for(), tokens)
        self.store.check()
        return found

    def length(self, tokens: Sequence[int], key: CacheKey | None = None) -> int:
        return self.find(tokens, key).length

    def use(self, tokens: Sequence[int]) -> None:
        self.store.used(self.find(tokens))


def key_for(session: str = ANONYMOUS, **differing: object) -> CacheKey:
    key = CacheKey(
        session=session,
        lora=(),
        template=NO_DIGEST,
        tool_choice="__absent__",
        tools=NO_DIGEST,
        media=NO_DIGEST,
    )
    return replace(key, **differing)  # type: ignore[arg-type]


def state_of(tokens: Sequence[int], *, can_be_cut: bool = False) -> State:
    """A window that holds the tokens themselves, or a recurrent state of `BLOB` bytes."""
    if can_be_cut:
        window = RotatingKVCache(WINDOW)
        column = mx.array(tokens, dtype=mx.float32).reshape(1, 1, -1, 1)
        window.update_and_fetch(column, column)
        return taken([window], len(tokens))
    recurrent = ArraysCache(1)
    recurrent[0] = mx.full((1, BLOB // 4), len(tokens), dtype=mx.float32)
    return taken([recurrent], len(tokens))


def run(start: int, count: int) -> list[int]:
    return list(range(start, start + count))
