"""The newest values of each row as the model made them, over those that are kept in a coarser
form (`turbo4-delegated`).

They are in a ring of their own, position p in slot p % window. What was not read here (a prefix
out of the prompt cache) is not in it: there the kept form is seen until it is `window` tokens old.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mlxcel.engine.kv.columns import Columns, Ring, Writes


class Recent:
    """Which slots count, for all layers. Places as in the batch."""

    def __init__(self, window: int) -> None:
        self.ring = Ring(window)
        self.writes = Writes(self.ring)
        self._since: list[int] = []
        """The first position of each row that is in its ring."""
        self._counts = self._slots = mx.array([], dtype=mx.int32)

    def join(self, caches: Sequence[Any], length: int) -> None:
        """`caches` of the row's prompt; any of them that keeps recent values speaks for all."""
        start = next(c.recent_start for c in caches if hasattr(c, "recent_start"))
        self._since.append(min(length, max(start, length - self.ring.cap)))

    def leave(self, place: int) -> None:
        since = self._since.pop()
        if place < len(self._since):
            self._since[place] = since

    def begin(self, lengths: list[int], width: int, places: int, offsets: mx.array | None) -> None:
        """`lengths` are the positions written in this step; `offsets` as `Writes.begin` has it."""
        self.writes.begin(lengths, places, offsets)
        oldest = [
            max(n - self.ring.cap + 1, since) for n, since in zip(lengths, self._since, strict=True)
        ]
        # What stands behind a row's newest column is hidden by the mask of the batch.
        columns = mx.arange(width, dtype=mx.int32)
        self._counts = (columns >= mx.array(oldest, dtype=mx.int32)[:, None])[:, None, :, None]
        self._slots = columns % self.ring.cap

    def over(self, values: mx.array, columns: Columns) -> mx.array:
        """`values` `[rows, heads, width, dim]` with the recent ones in their place."""
        exact = mx.take(columns.arrays[0][: values.shape[0]], self._slots, axis=2)
        return mx.where(self._counts, exact, values)
