"""Whole states of rows by the tokens they have read (engine contract, cache 7).

A state is good for prompts that begin with exactly its tokens; only some can be cut to fewer.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

from mlxcel.core.cache import Divergence, Reject
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.explain import BEFORE, EXCERPT, ROOTS
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.shelf import WIDTH, Near, Shelf, Snapshot, packed, unpacked
from mlxcel.engine.cache.states import State, cut

log = logging.getLogger(__name__)


class Origin(StrEnum):
    """Where in a conversation a state was taken. What comes next is of the same origin again, and
    takes its place; a state at a boundary must outlive the one at the end of the same reply."""

    BOUNDARY = "boundary"
    """Where the next turn will part from this one."""
    COMPLETION = "completion"
    """The end of a reply."""
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRules:
    capacity_bytes: int | None
    """None: no bound."""
    max_entries: int
    ttl_s: float
    """Since the last use; 0: for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundState:
    length: int = 0
    """Tokens of `state`."""
    state: State | None = None
    reason: Reject | None = None
    """Of a miss; of a hit: why it was not longer, though more tokens agree with some entry."""
    diverged: Divergence | None = None
    """None: no entry, or the nearest one is a beginning of the prompt."""
    entry_length: int = 0
    """Tokens of the nearest entry."""
    entry: Snapshot | None = None
    """Whose state it is, or was cut from."""


class SnapshotStore:
    """Owned by the tick."""

    def __init__(
        self,
        rules: SnapshotRules,
        counters: Counters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bytes = 0
        self._rules = rules
        self._counters = counters
        self._clock = clock
        self._sessions: dict[str, dict[CacheKey, Shelf]] = {}
        self._all: OrderedDict[Snapshot, None] = OrderedDict()
        """The least recently used first."""
        self._rank = 0
        self._has_warned = False

    @property
    def entries(self) -> int:
        return len(self._all)

    def kept(self) -> list[Snapshot]:
        """The least recently used first."""
        return list(self._all)

    # Looking up

    def has(self, key: CacheKey, data: bytes) -> bool:
        """A state after exactly these tokens, which are packed."""
        shelf = self._sessions.get(key.session, {}).get(key)
        return shelf is not None and shelf.get(data) is not None

    def find(self, key: CacheKey, tokens: Sequence[int]) -> FoundState:
        """The longest state of which the prompt has all the tokens and at least one more. Counts
        nothing and changes no order of use."""
        self._expire()
        shelves = self._sessions.get(key.session, {})
        data, shelf = packed(tokens), shelves.get(key)
        if shelf is None:
            return _elsewhere(shelves, key, data)
        near = shelf.near(data)
        found = _longest(shelf, near, data)
        first = near[0]
        if found.state is None:
            other = _nearest(shelves, key, data)
            if other is not None and other.shared > first.shared:
                first = other
        is_inside = first.is_beginning and first.entry.key == key
        reason = _shortness(found.length, first.shared, len(tokens))
        is_all = reason is None and first.shared == len(tokens)
        return replace(
            found,
            reason=reason,
            diverged=None if is_inside or is_all else _divergence(key, first, data),
            entry_length=first.entry.length,
        )

    def used(self, found: FoundState) -> None:
        """It was adopted: its entry is the one used last."""
        if found.entry is not None and found.entry in self._all:
            self._touch(found.entry)

    # Keeping

    def insert(self, key: CacheKey, tokens: Sequence[int], state: State, *, origin: str) -> None:
        """One of the same origin that is a beginning of it makes room. The same tokens again only
        refresh what is there."""
        assert state.position == len(tokens) > 0, f"a state of {state.position} for {len(tokens)}"
        self._expire()
        data = packed(tokens)
        shelf = self._sessions.get(key.session, {}).get(key)
        known = None if shelf is None else shelf.get(data)
        if known is not None:
            self._touch(known)
            return
        nbytes = state.nbytes
        if self._is_oversized(nbytes, len(tokens)):
            return
        if shelf is not None:
            self._supersede(shelf, data, origin)
        self._make_room(key, data, nbytes)
        entry = Snapshot(key=key, data=data, state=state, nbytes=nbytes, origin=origin)
        self._sessions.setdefault(key.session, {}).setdefault(key, Shelf()).add(entry)
        self._all[entry] = None
        self.bytes += nbytes
        self._touch(entry)
        self._counters.snapshot_inserts += 1

    def drop(self, state: State) -> None:
        """It turned out not to be there. Nothing, where it is kept no more."""
        for entry in [entry for entry in self._all if entry.state is state]:
            self._forget(entry)

    def fit(self, limit_bytes: int) -> None:
        """Evict the least recently used until no more bytes are held."""
        while self.bytes > limit_bytes and self._all:
            self._evict(next(iter(self._all)))

    def reset(self) -> tuple[int, int]:
        """Forget all. Bytes and entries that there were."""
        freed = self.bytes, self.entries
        self._sessions.clear()
        self._all.clear()
        self.bytes = 0
        return freed

    def check(self) -> None:
        """Our own invariants, for tests."""
        shelves = [shelf for keys in self._sessions.values() for shelf in keys.values()]
        assert all(self._sessions.values()), "a session without keys"
        assert all(shelf.sorted for shelf in shelves), "a key without states"
        placed = [entry for shelf in shelves for entry in shelf.sorted]
        assert set(placed) == set(self._all)
        assert len(placed) == len(self._all)
        for shelf in shelves:
            order = [entry.data for entry in shelf.sorted]
            assert order == sorted(set(order))
        ranks = [entry.rank for entry in self._all]
        assert ranks == sorted(ranks)
        assert all(entry.state.position == entry.length for entry in placed)
        assert self.bytes == sum(entry.state.nbytes for entry in placed)
        assert self.entries <= self._rules.max_entries
        capacity = self._rules.capacity_bytes
        assert capacity is None or self.bytes <= capacity

    # Bounds

    def _is_oversized(self, nbytes: int, length: int) -> bool:
        capacity = self._rules.capacity_bytes
        if capacity is None or nbytes <= capacity:
            return False
        self._counters.snapshot_rejections_oversized += 1
        self._counters.reject(Reject.OVERSIZED, None, length, 0, int(time.time() * 1000))
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "the state after %d tokens has %d bytes and does not fit into the snapshots of %d "
                "bytes: it is not kept (said once); raise cache.snapshot.capacity_bytes",
                length,
                nbytes,
                capacity,
            )
        return True

    def _supersede(self, shelf: Shelf, data: bytes, origin: str) -> None:
        for older in list(shelf.beginnings(data)):
            if older.origin == origin:
                self._counters.snapshot_supersedes += 1
                self._forget(older)

    def _make_room(self, key: CacheKey, data: bytes, nbytes: int) -> None:
        rules = self._rules
        while self._all and (
            self.entries >= rules.max_entries
            or (rules.capacity_bytes is not None and self.bytes + nbytes > rules.capacity_bytes)
        ):
            oldest = next(iter(self._all))
            is_own = oldest.key == key and data.startswith(oldest.data)
            self._counters.snapshot_self_evictions += is_own
            self._evict(oldest)

    def _evict(self, entry: Snapshot) -> None:
        self._counters.snapshot_evictions_lru += 1
        self._forget(entry)

    def _expire(self) -> None:
        ttl_s, now = self._rules.ttl_s, self._clock()
        while ttl_s > 0 and self._all:
            oldest = next(iter(self._all))
            if now - oldest.used_at <= ttl_s:
                return
            self._counters.snapshot_evictions_ttl += 1
            self._forget(oldest)

    def _touch(self, entry: Snapshot) -> None:
        self._rank += 1
        entry.rank, entry.used_at = self._rank, self._clock()
        self._all.move_to_end(entry)

    def _forget(self, entry: Snapshot) -> None:
        keys = self._sessions[entry.key.session]
        shelf = keys[entry.key]
        shelf.remove(entry)
        if not shelf.sorted:
            del keys[entry.key]
        if not keys:
            del self._sessions[entry.key.session]
        del self._all[entry]
        self.bytes -= entry.nbytes


def _longest(shelf: Shelf, near: Sequence[Near], data: bytes) -> FoundState:
    """The longest state for a prompt, at least one token of which is left to be read."""
    most = len(data) // WIDTH - 1
    whole = next(shelf.beginnings(data), None)
    length = 0 if whole is None else whole.length
    for one in near:
        common = min(one.shared, most)
        if common <= length:
            break
        shorter = cut(one.entry.state, common)
        if shorter is not None:
            return FoundState(length=common, state=shorter, entry=one.entry)
    if whole is None:
        return FoundState()
    return FoundState(length=length, state=whole.state, entry=whole)


# Explaining


def _shortness(length: int, shared: int, prompt: int) -> Reject | None:
    """Why a state of `length` tokens is all that is used, where an entry shares more of the
    prompt. Where it shares all of it, nothing diverges: the state is only too far ahead."""
    if length and length >= min(shared, prompt - 1):
        return None
    return Reject.LAYOUT_CONSTRAINTS if shared == prompt else Reject.SNAPSHOT_DIVERGED


def _elsewhere(shelves: dict[CacheKey, Shelf], key: CacheKey, data: bytes) -> FoundState:
    """Nothing is kept under the key: what there is under others of its session."""
    near = _nearest(shelves, key, data)
    if near is None:
        return FoundState(reason=Reject.EMPTY_SET)
    is_rope = any(key.differs_by_rope_alone(other) for other in shelves)
    return FoundState(
        reason=Reject.ROPE_REGIME_MISMATCH if is_rope else Reject.EMPTY_SET,
        diverged=_divergence(key, near, data),
        entry_length=near.entry.length,
    )


def _nearest(shelves: dict[CacheKey, Shelf], key: CacheKey, data: bytes) -> Near | None:
    """Of other keys; where two have as much in common, under the one that differs less."""
    others = (shelf for other, shelf in reversed(shelves.items()) if other != key)
    found = [shelf.near(data)[0] for shelf in islice(others, ROOTS)]
    return max(found, key=lambda one: (one.shared, -len(key.differs(one.entry.key))), default=None)


def _divergence(key: CacheKey, near: Near, data: bytes) -> Divergence:
    start = max(0, near.shared - BEFORE)
    excerpt = slice(start * WIDTH, (start + EXCERPT) * WIDTH)
    return Divergence(
        at=near.shared,
        start=start,
        prompt_ids=unpacked(data[excerpt]),
        entry_ids=unpacked(near.entry.data[excerpt]),
        differs=key.differs(near.entry.key),
    )
