"""Values in memory within three bounds: how many, how large together, and how long since their
last use.

Owned by the event loop. Knows bytes and keys, not what they mean.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

Key = tuple[str, str]
"""Owner and id: what one owner keeps is not there for another."""
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_entries: int
    """0: nothing is kept, and whoever asks is told so."""
    max_bytes: int
    """0: what is kept is dropped at once."""
    ttl_s: float
    """Since the last use; 0: for ever."""

    @property
    def is_on(self) -> bool:
        return self.max_entries > 0


@dataclass(slots=True)
class _Entry:
    value: bytes
    used_s: float


def _nothing(key: Key) -> None:
    return None


class Shelf:
    """The least recently used goes first."""

    def __init__(
        self,
        bounds: Bounds,
        *,
        clock: Clock = time.monotonic,
        on_drop: Callable[[Key], None] = _nothing,
    ) -> None:
        """`on_drop` is told of every key that is no longer there, for whatever reason."""
        self._bounds = bounds
        self._clock = clock
        self._on_drop = on_drop
        self._entries: dict[Key, _Entry] = {}
        """In order of their last use."""
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: Key, value: bytes) -> None:
        """In place of what was there. It may be gone at once: then it is too large."""
        self.pop(key)
        self._entries[key] = _Entry(value, self._clock())
        self.total_bytes += len(value)
        self._shrink()

    def get(self, key: Key) -> bytes | None:
        """Not a use: whoever only looks keeps nothing alive."""
        self._shrink()
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def touch(self, key: Key) -> None:
        """A use. A no-op for what is not there."""
        self._shrink()
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.used_s = self._clock()
            self._entries[key] = entry

    def pop(self, key: Key) -> bytes | None:
        self._shrink()
        return self._drop(key)

    def _drop(self, key: Key) -> bytes | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.total_bytes -= len(entry.value)
        self._on_drop(key)
        return entry.value

    def _shrink(self) -> None:
        while self._entries and self._is_over():
            self._drop(next(iter(self._entries)))

    def _is_over(self) -> bool:
        bounds = self._bounds
        if len(self._entries) > bounds.max_entries or self.total_bytes > bounds.max_bytes:
            return True
        oldest = next(iter(self._entries.values()))
        return bool(bounds.ttl_s) and self._clock() - oldest.used_s > bounds.ttl_s
