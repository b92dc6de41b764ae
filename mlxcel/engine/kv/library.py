"""KV of rows in mlx-lm's own batch caches: rotating windows, recurrent and hybrid state.

These are left-padded and share one write index; they work for every model whose caches can be
merged, at the price of a mask and per-layer offset arithmetic in each step.
"""

from typing import Any

import mlx.core as mx


class LibraryKV:
    """All layers' state, as a list of mlx-lm batch caches. Same use as `RaggedKV`."""

    def __init__(self) -> None:
        self.layers: list[Any] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def join(self, row: list[Any]) -> None:
        merged = [type(cache).merge([cache]) for cache in row]
        if self._rows:
            for layer, new in zip(self.layers, merged, strict=True):
                layer.extend(new)
        else:
            self.layers = merged
        self._rows += 1

    def leave(self, place: int) -> None:
        last = self._rows - 1
        self._rows -= 1
        if not self._rows:
            self.layers = []
            return
        order = [last if i == place else i for i in range(last)]
        for layer in self.layers:
            layer.filter(mx.array(order))

    def begin(self) -> None:
        """Nothing to prepare: the caches do their own arithmetic."""

    def advance(self) -> None:
        """Nothing to do: the caches advance when they are written."""

    def check(self) -> None:
        assert bool(self.layers) == bool(self._rows)


class SoloKV:
    """The state of the one row of a model whose caches cannot be merged."""

    def __init__(self) -> None:
        self.layers: list[Any] = []

    def __len__(self) -> int:
        return 1 if self.layers else 0

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def join(self, row: list[Any]) -> None:
        assert not self.layers, "one row at a time"
        self.layers = row

    def leave(self, place: int) -> None:
        self.layers = []

    def begin(self) -> None:
        """Nothing to prepare."""

    def advance(self) -> None:
        """Nothing to do: the caches advance when they are written."""

    def check(self) -> None:
        assert len(self) <= 1
