"""Requests whose prefix is being brought from disk, on threads: reading takes longer than a decode
step, and the tick must not wait for it."""

from collections.abc import Iterator
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

    def __init__(self) -> None:
        self._waiting: dict[str, Fetching] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, one: Fetching) -> None:
        self._waiting[one.request.id] = one

    def cancel(self, name: str) -> None:
        """Unknown names are ignored. What is read arrives and is dropped."""
        self._waiting.pop(name, None)

    def done(self) -> Iterator[Fetching]:
        """Each whose files were read, be it in vain."""
        for name in [name for name, one in self._waiting.items() if one.fetch.is_done]:
            yield self._waiting.pop(name)
