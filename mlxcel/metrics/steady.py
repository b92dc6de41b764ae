"""Counters of a worker as if it had never been restarted: they only grow."""

from collections import defaultdict
from collections.abc import Mapping


class Steady:
    """What each life of a worker had counted when it was last seen adds up. Owned by the event
    loop."""

    def __init__(self) -> None:
        self._life: int | None = None
        self._seen: dict[str, int] = {}
        self._before: defaultdict[str, int] = defaultdict(int)

    def see(self, life: int, counters: Mapping[str, int]) -> None:
        """`life` tells one start of the worker from the next. Every call has the same names."""
        for name, value in counters.items():
            last = self._seen.get(name, 0)
            # A worker that is gone reads as zeros before its next life has a number.
            if life != self._life or value < last:
                self._before[name] += last
        self._life, self._seen = life, dict(counters)

    def __getitem__(self, name: str) -> int:
        """0 for what was never seen."""
        return self._before.get(name, 0) + self._seen.get(name, 0)
