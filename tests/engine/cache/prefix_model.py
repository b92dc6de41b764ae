"""What the prefix store does, said with sets of prefixes: slow, and hardly to be got wrong.

A place is a key with all tokens up to somewhere; it is in memory when an entry in memory begins
with it, on disk when a file has the column of its last token.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from mlxcel.engine.cache.adopt import StoreRules
from mlxcel.engine.cache.key import CacheKey
from tests.engine.cache.told_payload import TOKEN_BYTES

Tokens = tuple[int, ...]
Place = tuple[CacheKey, Tokens]


@dataclass
class End:
    is_asked: bool
    used_at: float = 0.0


class Model:
    def __init__(self, rules: StoreRules) -> None:
        self.rules = rules
        self.ends: dict[Place, End] = {}
        self.held: OrderedDict[Place, None] = OrderedDict()
        self.files: dict[Place, str] = {}
        self.now = 0.0
        self.oversized = 0

    # What is where

    def in_memory(self) -> set[Place]:
        return {place for end in self.held for place in prefixes(*end)}

    def available(self) -> set[Place]:
        there = self.in_memory() | self.files.keys()
        return {place for place in there if all(p in there for p in prefixes(*place))}

    @property
    def bytes(self) -> int:
        return TOKEN_BYTES * len(self.in_memory())

    # Look-up

    def agreed(self, key: CacheKey, ids: Tokens, there: set[Place]) -> int:
        return max((len(p) for _, p in prefixes(key, ids) if (key, p) in there), default=0)

    def length(self, key: CacheKey, ids: Tokens, there: set[Place]) -> int:
        agreed, rules = self.agreed(key, ids, there), self.rules
        if not rules.is_apc:
            whole = [len(e) for k, e in self.ends if k == key and ids[: len(e)] == e]
            agreed = max((n for n in whole if n <= agreed), default=0)
        usable = min(agreed, len(ids) - 1)
        if usable < rules.min_prefix:
            return 0
        if rules.is_apc and rules.floor > 1:
            usable -= usable % rules.block
            usable -= usable % rules.floor
        return usable if usable >= rules.min_prefix else 0

    def reason(self, key: CacheKey, ids: Tokens, there: set[Place]) -> str | None:
        if not any(k == key for k, _ in there):
            return "empty_set"
        if self.length(key, ids, there):
            return None
        if not self.rules.is_apc:
            fits = any(k == key and ids[: len(e)] == e for k, e in self.ends)
            return "prefix_too_short" if fits else "layout_constraints"
        usable = min(self.agreed(key, ids, there), len(ids) - 1)
        return "prefix_too_short" if usable < self.rules.min_prefix else "block_boundary_floor"

    # Changes

    def insert(self, key: CacheKey, ids: Tokens) -> tuple[int, int] | None:
        """The cut that has to be asked for."""
        self.expire()
        if not ids:
            return None
        memory = self.in_memory()
        agreed = self.agreed(key, ids, memory)
        if agreed == len(ids) and (self.rules.is_apc or (key, ids) in self.held):
            self.touch(self.latest(key, ids))
            return None
        cut = None if agreed == len(ids) else (agreed, len(ids))
        capacity = self.rules.capacity_bytes
        if cut is not None and capacity is not None and TOKEN_BYTES * len(ids) > capacity:
            self.oversized += 1
            return cut
        self.keep(key, ids, is_asked=True)
        return cut

    def latest(self, key: CacheKey, ids: Tokens) -> Place:
        """The entry used last of those that begin so."""
        if not self.rules.is_apc and (key, ids) in self.held:
            return key, ids
        return next(end for end in reversed(self.held) if begins(end, key, ids))

    def used(self, key: CacheKey, ids: Tokens) -> None:
        ends = [end for end in reversed(self.held) if begins(end, key, ids)]
        if ends:
            self.touch(ends[0])

    def keep(self, key: CacheKey, ids: Tokens, *, is_asked: bool) -> None:
        end = self.ends.setdefault((key, ids), End(is_asked))
        end.is_asked = end.is_asked or is_asked
        for above in prefixes(key, ids[:-1]):
            if above in self.ends and (self.rules.is_apc or not self.ends[above].is_asked):
                del self.ends[above]
                self.held.pop(above, None)
        self.held[(key, ids)] = None
        self.touch((key, ids))
        while len(self.held) > self.rules.max_entries:
            self.release(next(iter(self.held)))
        if self.rules.capacity_bytes is not None:
            self.fit(self.rules.capacity_bytes)

    def touch(self, place: Place) -> None:
        self.ends[place].used_at = self.now
        self.held.move_to_end(place)

    def expire(self) -> None:
        for place in list(self.held):
            if 0 < self.rules.ttl_s < self.now - self.ends[place].used_at:
                self.release(place)

    def fit(self, limit_bytes: int) -> None:
        while self.bytes > limit_bytes:
            self.release(next(iter(self.held)))

    def release(self, place: Place) -> None:
        del self.held[place]
        self.tidy()

    def lost(self, key: CacheKey, ids: Tokens) -> None:
        for end in [end for end in self.held if begins(end, key, ids)]:
            self.release(end)

    def gone(self, file: str) -> None:
        self.files = {place: name for place, name in self.files.items() if name != file}
        self.tidy()

    def place(self, key: CacheKey, ids: Tokens, start: int, file: str) -> bool:
        there = self.available()
        agreed = self.agreed(key, ids, there)
        if agreed < start or start >= len(ids):
            return False
        for place in prefixes(key, ids):
            if len(place[1]) > start:
                self.files.setdefault(place, file)
        if agreed < len(ids):
            self.ends[(key, ids)] = End(is_asked=True)
            for above in prefixes(key, ids[:-1]):
                if self.rules.is_apc and above in self.ends and above not in self.held:
                    del self.ends[above]
        return True

    def stored(self, key: CacheKey, ids: Tokens, start: int, file: str) -> None:
        """Of a run that is in the tree: the newest file counts."""
        for place in prefixes(key, ids):
            if len(place[1]) > start:
                self.files[place] = file

    def reset(self) -> None:
        self.ends.clear()
        self.held.clear()
        self.files.clear()

    def tidy(self) -> None:
        """Forget what cannot be reached; where nothing follows, something ends."""
        there = self.available()
        self.files = {place: name for place, name in self.files.items() if place in there}
        self.ends = {place: end for place, end in self.ends.items() if place in there}
        inner = {(key, ids[:-1]) for key, ids in there}
        for leaf in there - inner - self.ends.keys():
            self.ends[leaf] = End(is_asked=False)


def prefixes(key: CacheKey, ids: Tokens) -> Iterator[Place]:
    return ((key, ids[:stop]) for stop in range(1, len(ids) + 1))


def begins(end: Place, key: CacheKey, ids: Tokens) -> bool:
    return end[0] == key and end[1][: len(ids)] == ids
