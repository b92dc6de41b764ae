"""Requests whose prefix is being brought from disk, on threads: reading takes longer than a decode
step, and the tick must not wait for it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mlxcel.engine.cache.spill import Fetch
from mlxcel.engine.constraint.matcher import Matcher
from mlxcel.engine.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class Fetching:
    """One of them; `matchers` wait with it."""

    request: Request
    matchers: list[Matcher]
    fetch: Fetch


class FetchQueue:
    """Owned by the tick."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[str, Fetching] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, one: Fetching) -> None:
        self._waiting[one.request.id] = one

    def cancel(self, name: str) -> None:
        """Unknown names are ignored. What nobody waits for is not read."""
        if (one := self._waiting.pop(name, None)) is not None:
            one.fetch.give_up()

    def done(self) -> Iterator[Fetching]:
        """Each whose files were read, be it in vain, or were waited for long enough."""
        now_s = self._clock()
        for name in [name for name, one in self._waiting.items() if one.fetch.is_over(now_s)]:
            yield self._waiting.pop(name)
