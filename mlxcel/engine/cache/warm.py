"""Prompts to be read into the cache while nothing else is to be done."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from mlxcel.core.cache import CacheTag
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.key import CacheKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmJob:
    key: CacheKey
    tokens: tuple[int, ...]
    tag: CacheTag


class WarmQueue:
    """The oldest is the next; when there are too many it is the oldest that is given up. Owned by
    the tick."""

    def __init__(self, counters: Counters, most: int = 8) -> None:
        self._counters = counters
        self._most = most
        self._jobs: deque[WarmJob] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: WarmJob) -> None:
        """A job whose tokens this one begins with is done by it."""
        self.drop_for(job.key, job.tokens)
        self._jobs.append(job)
        while len(self._jobs) > self._most:
            self._jobs.popleft()
            self._counters.snapshot_warmups_skipped += 1

    def next(self) -> WarmJob | None:
        """Takes it out."""
        return self._jobs.popleft() if self._jobs else None

    def drop_for(self, key: CacheKey, tokens: Sequence[int]) -> None:
        """A prompt is about to be read: jobs that it begins with would be for nothing."""
        ids = tuple(tokens)
        kept = [job for job in self._jobs if job.key != key or ids[: len(job.tokens)] != job.tokens]
        self._counters.snapshot_warmups_skipped += len(self._jobs) - len(kept)
        self._jobs = deque(kept)
