"""KV of rows in mlx-lm's own caches: rotating windows, recurrent and hybrid state.

Its batch caches are left-padded and share one write index; they work for every model whose
caches can be merged, at the price of a mask and per-layer offset arithmetic in each step.
"""

import copy
from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList

from mlxcel.engine.kv.mark import Mark
from mlxcel.engine.kv.prefilled import Prefilled

Fresh = Callable[[], list[Any]]
"""Makes the caches of a row that has read nothing."""


class LibraryKV:
    """All layers' state, as a list of mlx-lm batch caches. Same use as `RaggedKV`."""

    label = "batched forward over mlx-lm's batch caches"
    keeps_columns = False
    can_rewind = False
    can_replay = True

    def __init__(self, fresh: Fresh) -> None:
        self._fresh = fresh
        self.layers: list[Any] = []
        self._mark: Mark | None = None
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def join(self, prefilled: Prefilled, index: int = 0) -> None:
        caches = _row(prefilled, index, self._fresh)
        merged = [type(cache).merge([cache]) for cache in caches]
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

    def seen(self, place: int, start: int, stop: int) -> tuple[mx.array, mx.array]:
        last = self.layers[-1]
        before = cast(list[int], last.left_padding.tolist())[place]
        at = slice(before + start, before + stop)
        return last.keys[place : place + 1, :, at], last.values[place : place + 1, :, at]

    def states(self, place: int) -> list[Any]:
        """The caches of one row, of mlx-lm's kinds for rows; they may share memory with ours."""
        return [layer.extract(place) for layer in self.layers]

    def begin(self) -> None:
        """Nothing to prepare: the caches do their own arithmetic."""

    def advance(self) -> None:
        """Nothing to do: the caches advance when they are written."""

    def mark(self) -> None:
        assert len(self) == 1, "rows that read unequally much again cannot do it together"
        self._mark = Mark(self.layers)

    def back(self) -> None:
        assert self._mark is not None
        self._mark.back()
        self._mark = None

    def check(self) -> None:
        """Our own invariants, for tests: every layer has one place a row, and none is left."""
        assert bool(self.layers) == bool(self._rows)
        assert all(_places(layer) == self._rows for layer in self.layers)


class SoloKV:
    """The state of the one row of a model whose rows cannot decode together."""

    label = "one row at a time"
    keeps_columns = False
    can_rewind = False
    can_replay = True

    def __init__(self, fresh: Fresh) -> None:
        self._fresh = fresh
        self.layers: list[Any] = []
        self._mark: Mark | None = None

    def __len__(self) -> int:
        return 1 if self.layers else 0

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def join(self, prefilled: Prefilled, index: int = 0) -> None:
        assert not self.layers, "one row at a time"
        self.layers = _row(prefilled, index, self._fresh)

    def leave(self, place: int) -> None:
        assert place == 0 and self.layers
        self.layers = []

    def seen(self, place: int, start: int, stop: int) -> tuple[mx.array, mx.array]:
        last = self.layers[-1]
        return last.keys[:, :, start:stop], last.values[:, :, start:stop]

    def states(self, place: int) -> list[Any]:
        """The row's own caches, which go on changing: they are to be copied."""
        assert place == 0 and self.layers
        return self.layers

    def begin(self) -> None:
        """Nothing to prepare."""

    def advance(self) -> None:
        """Nothing to do: the caches advance when they are written."""

    def mark(self) -> None:
        assert len(self) == 1, "rows that read unequally much again cannot do it together"
        self._mark = Mark(self.layers)

    def back(self) -> None:
        assert self._mark is not None
        self._mark.back()
        self._mark = None

    def check(self) -> None:
        """Nothing can be left over: the one row's caches are all there is."""


def _row(prefilled: Prefilled, index: int, fresh: Fresh) -> list[Any]:
    """Caches of our own. A row of no tokens gets empty ones: whatever was read is padding, which
    a recurrent state cannot take back."""
    assert len(prefilled.lengths) == 1 and index == 0, "these caches are read row by row"
    # Copied are the handles of the arrays: the memory is shared until one side is written.
    return copy.deepcopy(prefilled.caches) if prefilled.lengths[0] else fresh()


def _places(layer: Any) -> int:
    """Rows a batch cache has room for."""
    if isinstance(layer, CacheList):
        (places,) = {_places(part) for part in layer.caches}
        return places
    if isinstance(layer, ArraysCache):
        return int(layer.batch_size)
    return int(layer.offset.shape[0])
