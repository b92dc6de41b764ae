"""Keeping the whole state of rows: families with windows, recurrent or other state of their own,
whose KV cannot be cut at any place.
"""

import logging
from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx

from mlxcel.core.cache import CacheTag, Source
from mlxcel.engine.cache.counters import Counters, SnapshotNumbers
from mlxcel.engine.cache.disk.tier import DiskTier
from mlxcel.engine.cache.keeping import EVALUATION_ERRORS, Numbers
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.look import Look
from mlxcel.engine.cache.shelf import unpacked
from mlxcel.engine.cache.snapshots import FoundState, Origin, SnapshotRules, SnapshotStore
from mlxcel.engine.cache.spill import Fetch
from mlxcel.engine.cache.state_files import Kinds
from mlxcel.engine.cache.state_spill import StateFetch, StateSpill
from mlxcel.engine.cache.states import NotKept, State, restored, taken
from mlxcel.engine.kv.batch import KVBatch, KVStates
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.prompt import Reading
from mlxcel.worker.base import Progress

log = logging.getLogger(__name__)


class StateKeeping:
    """Implements `Keeping`."""

    def __init__(self, rules: SnapshotRules, counters: Counters, *, at_boundary: bool) -> None:
        """`at_boundary`: prefill stops where the next turn will part from this one."""
        self.store = SnapshotStore(rules, counters)
        self._rules = rules
        self._counters = counters
        self._at_boundary = at_boundary
        self._fresh: list[State] = []
        self._older: list[State] = []
        self.spill: StateSpill | None = None
        self._is_behind = False
        """Something was kept since states were last written."""

    def write_to(self, tier: DiskTier, kinds: Kinds, progress: Progress) -> None:
        """From now on what is kept is written there, and what was written before is found."""
        self.spill = StateSpill(tier, kinds)
        self.spill.open(progress)

    @property
    def nbytes(self) -> int:
        return self.store.bytes

    @property
    def entries(self) -> int:
        return self.store.entries

    def look(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> Look:
        return _look(self.store.find(key, tokens))

    def length(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> int:
        return self.store.find(key, tokens).length

    def fetch(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> Fetch | None:
        if self.spill is None:
            return None
        self.spill.poll()
        filed = self.spill.find(key, tokens)
        if filed is None or filed.length <= self.length(key, tag, tokens):
            return None
        return self.spill.fetch(filed)

    def computed(self, tokens: int, seconds: float) -> None:
        """A state is brought in any case: it stands for all tokens before it."""

    def fetched(self, fetch: Fetch) -> int:
        assert self.spill is not None
        assert isinstance(fetch, StateFetch)
        filed = fetch.filed
        if (read := self.spill.take(fetch)) is None or self.store.has(filed.key, filed.data):
            return 0
        state, origin = read
        self._fresh.append(state)
        self.store.insert(filed.key, unpacked(filed.data), state, origin=origin)
        return filed.length

    def adopt(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> Look:
        found = self.store.find(key, prompt.tokens)
        if found.state is not None:
            self.store.used(found)
            if self.spill is not None and found.entry is not None:
                self.spill.used(found.entry.key, found.entry.data)
            prompt.kv = Prefilled(restored(found.state), (found.length,))
            prompt.index, prompt.computed = 0, found.length
        return _look(found)

    def count(self, tokens: int, look: Look) -> None:
        self._counters.looked_up_state(tokens, look.length)

    def stop(self, tag: CacheTag, prompt: Reading) -> int:
        is_ahead = prompt.computed < tag.boundary < len(prompt.tokens)
        return tag.boundary if self._at_boundary and is_ahead else 0

    def keep_prompt(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> None:
        if prompt.kv is None or not prompt.computed or len(prompt.kv.lengths) > 1:
            return
        is_boundary = prompt.computed == tag.boundary
        # The end of a prompt is rarely where the next turn begins: one state a turn is enough. One
        # before the boundary is that of a prompt that is given up.
        if is_boundary or not self._at_boundary or not 0 < tag.boundary < prompt.computed:
            tokens = prompt.tokens[: prompt.computed]
            origin = Origin.BOUNDARY if is_boundary else Origin.PROMPT
            self._insert(key, tokens, prompt.kv.caches, origin)

    def keep_row(self, key: CacheKey, tokens: Sequence[int], kv: KVBatch, place: int) -> None:
        if tokens:
            states = cast(KVStates, kv).states(place)
            self._insert(key, tokens, states, Origin.COMPLETION)

    def begin_turn(self) -> None:
        if self.spill is not None:
            self.spill.poll()
        self._grow_older()

    def end_turn(self, *, is_idle: bool) -> None:
        if is_idle:
            self._grow_older()
        older, self._older = self._older, []
        try:
            mx.eval([state.arrays() for state in older])
        except EVALUATION_ERRORS as why:
            log.warning("a state that was to be kept is lost: %s", why)
            for state in older:
                self.store.drop(state)
        if is_idle and self.spill is not None and self._is_behind:
            # Whole states are large: those that are superseded at once are not worth it.
            self._is_behind = False
            self.spill.write(self.store.kept())

    def distrust(self) -> None:
        for state in (*self._older, *self._fresh):
            self.store.drop(state)
        self._older, self._fresh = [], []

    def fit(self, limit_bytes: int) -> None:
        self.store.fit(limit_bytes)

    def reset(self) -> tuple[int, int]:
        freed = self.store.reset()
        if self.spill is not None:
            self.spill.reset()
        return freed

    def numbers(self) -> Numbers:
        return Numbers(
            snapshots=SnapshotNumbers(
                entries=self.store.entries,
                bytes=self.store.bytes,
                capacity_bytes=self._rules.capacity_bytes,
                max_entries=self._rules.max_entries,
            ),
            disk=None if self.spill is None else self.spill.stats(),
        )

    def check(self) -> None:
        self.store.check()
        if self.spill is not None:
            self.spill.check()

    def close(self) -> None:
        if self.spill is not None:
            self._is_behind = True  # what could not be written before is tried once more
            self.end_turn(is_idle=True)
            self.spill.close()

    def _grow_older(self) -> None:
        self._older += self._fresh
        self._fresh = []

    def _insert(
        self, key: CacheKey, tokens: Sequence[int], caches: list[Any], origin: Origin
    ) -> None:
        try:
            state = taken(caches, len(tokens))
        except NotKept as why:
            log.debug("a state of %d tokens is not kept: %s", len(tokens), why)
            return
        mx.async_eval(state.arrays())
        self._fresh.append(state)
        self._is_behind = True
        self.store.insert(key, tokens, state, origin=origin)


def _look(found: FoundState) -> Look:
    return Look(
        length=found.length,
        source=Source.SNAPSHOT,
        reason=found.reason,
        diverged=found.diverged,
        entry_length=found.entry_length,
    )
