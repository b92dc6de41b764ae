"""The states kept under one key, sorted so that few of them are looked at.

Knows tokens as packed bytes alone: one value to compare, to sort and to cut.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.states import State

NEAR = 16
"""Entries that are looked at, beside the one that is a beginning of the prompt: those that have
most in common with it."""
WIDTH = 4
"""Bytes of a token, packed."""


@dataclass(slots=True, eq=False, kw_only=True)
class Snapshot:
    """Mutable, owned by its store."""

    key: CacheKey
    data: bytes
    """Its tokens, packed: compared and sorted as one value."""
    state: State
    nbytes: int
    origin: str
    used_at: float = 0.0
    rank: int = 0
    """Greater: used later."""

    @property
    def length(self) -> int:
        return len(self.data) // WIDTH


@dataclass(frozen=True, slots=True)
class Near:
    entry: Snapshot
    shared: int
    """Tokens that the entry and the prompt begin with."""

    @property
    def is_beginning(self) -> bool:
        """The prompt begins with all of it."""
        return self.shared == self.entry.length


class Packed(Protocol):
    """What is kept by its tokens."""

    @property
    def data(self) -> bytes: ...

    @property
    def length(self) -> int:
        """Tokens."""
        ...


P = TypeVar("P", bound=Packed)


class Sorted(Generic[P]):
    """Entries of one key, in the order of their bytes."""

    def __init__(self) -> None:
        self.sorted: list[P] = []

    def get(self, data: bytes) -> P | None:
        at = bisect_left(self.sorted, data, key=_data)
        has = at < len(self.sorted) and self.sorted[at].data == data
        return self.sorted[at] if has else None

    def add(self, entry: P) -> None:
        self.sorted.insert(bisect_left(self.sorted, entry.data, key=_data), entry)

    def remove(self, entry: P) -> None:
        del self.sorted[bisect_left(self.sorted, entry.data, key=_data)]

    def beginnings(self, data: bytes) -> Iterator[P]:
        """Entries that the data begins with and goes on after, the longest first."""
        data = data[:-WIDTH]
        high = len(self.sorted)
        while high := bisect_right(self.sorted, data, hi=high, key=_data):
            # Shorter ones stand before this one, and what this one and the data share is all
            # they can have.
            high -= 1
            entry = self.sorted[high]
            shared = _shared(entry.data, data)
            if shared == entry.length:
                yield entry
            data = data[: shared * WIDTH]


class Shelf(Sorted[Snapshot]):
    """The further from where a prompt would stand, the less entries have in common with it."""

    def near(self, data: bytes) -> list[Near]:
        """Up to `NEAR` entries, those first that have most in common with the data; at the same
        length its beginnings, then the one used last."""
        found = list(islice(self._outwards(data), NEAR))
        found.sort(key=lambda one: (one.shared, one.is_beginning, one.entry.rank), reverse=True)
        return found

    def _outwards(self, data: bytes) -> Iterator[Near]:
        right = bisect_right(self.sorted, data, key=_data)
        left = right - 1
        before, after = self._at(left, data), self._at(right, data)
        while before is not None or after is not None:
            if after is None or (before is not None and before.shared >= after.shared):
                assert before is not None
                yield before
                left -= 1
                before = self._at(left, data)
            else:
                yield after
                right += 1
                after = self._at(right, data)

    def _at(self, place: int, data: bytes) -> Near | None:
        if not 0 <= place < len(self.sorted):
            return None
        entry = self.sorted[place]
        return Near(entry, _shared(entry.data, data))


def packed(tokens: Sequence[int]) -> bytes:
    return np.asarray(tokens, dtype="<i4").tobytes()


def unpacked(data: bytes) -> tuple[int, ...]:
    return tuple(np.frombuffer(data, dtype="<i4").tolist())


def _data(entry: Packed) -> bytes:
    return entry.data


def _shared(one: bytes, other: bytes) -> int:
    """Tokens that both begin with."""
    length = min(len(one), len(other)) // WIDTH
    differ = _ids(one, length) != _ids(other, length)
    return int(differ.argmax()) if differ.any() else length


def _ids(data: bytes, count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.frombuffer(data, dtype="<i4", count=count)
