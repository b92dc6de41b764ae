"""Observations by class, as Prometheus wants them: fixed upper bounds, a count, a sum."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Histogram:
    """Owned by the event loop."""

    def __init__(self, edges: Sequence[float]) -> None:
        """Ascending upper bounds, each part of its class; one class more is above them all."""
        self._edges = tuple(edges)
        self._counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, int]]:
        """As `buckets_of`."""
        return list(buckets_of(self._edges, self._counts))


def buckets_of(edges: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Each upper bound with how many are at most that; the last one is +Inf. `counts` are those of
    the classes, one more than edges; missing ones are 0."""
    full = [*counts, *[0] * (len(edges) + 1 - len(counts))]
    yield from zip([*(f"{edge:g}" for edge in edges), "+Inf"], accumulate(full), strict=True)
