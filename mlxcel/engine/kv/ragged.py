"""KV of rows of unequal length, left-aligned: column c of row b is position c.

Layers share one offset array and one mask, computed once a step. A mask is built only where
rows hold unequal numbers of positions: decode attention with a mask costs 2 to 8 times as much
on CUDA. Rows join by a copy into the next free place and leave by moving the last row into the
hole, so the rows that decode are always 0..n-1. The stock mlx-lm model call works on it
unchanged.

Under a cap (`max_kv_size`) the columns are a ring of that many: position p is in column p % cap,
the newest over the oldest. Softmax does not ask for an order, and RoPE went in with the true
position; so full rows need no mask, whatever their lengths.
"""

from typing import Any

import mlx.core as mx

from mlxcel.engine.kv.prefilled import Prefilled

STEP = 256
"""Columns are allocated in steps of this many."""


class RaggedKV:
    """All layers' KV. Owned by the decode loop; `len(kv)` is the number of rows.

    `cap` 0: rows hold all their positions.
    """

    def __init__(
        self, layers: int, slots: int, *, cap: int = 0, needs_no_mask: bool = False
    ) -> None:
        """`needs_no_mask`: the model's attention knows rows of unequal length (`attend`)."""
        self.needs_no_mask = needs_no_mask
        self.layers = [_Layer(self) for _ in range(layers)]
        self.slots = slots
        self.cap = cap
        self._lengths: list[int] = []
        self.common: int | None = None
        """The length of every row, where they are all of one length."""
        self.offsets = mx.array([], dtype=mx.int32)
        """Where they are not, the lengths, int32 `[rows]`."""
        self.columns = self.offsets
        """The column each place writes in this step, int32 `[places]`."""
        self.newest = self.offsets
        """The last column each row holds in this step, int32 `[rows]`."""
        self.width = 0
        """Columns that take part in this step: those of the longest row, the new one included."""
        self.mask: mx.array | None = None
        self._write_indices: dict[tuple[int, ...], mx.array] = {}
        self._fillers: dict[tuple[int, ...], mx.array] = {}

    @property
    def label(self) -> str:
        return "native batched forward" + (", ragged kernel" if self.needs_no_mask else "")

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def join(self, prefilled: Prefilled, index: int = 0) -> None:
        """Copy a row into the next free place. Its layers are mlx-lm `KVCache`s, under a cap
        `CappedKVCache`s; nothing is evaluated."""
        place = len(self._lengths)
        length = prefilled.lengths[index]
        # The rest of a cohort is about to follow: room for it now saves growing once a row.
        rows = min(self.slots, place + len(prefilled.lengths) - index)
        self._lengths.append(length)
        for layer, cache in zip(self.layers, prefilled.caches, strict=True):
            layer.take(place, cache, index, length, rows)

    def leave(self, place: int) -> None:
        """Free a place; the last row moves into it."""
        last = len(self._lengths) - 1
        length = self._lengths.pop()
        if place != last:
            self._lengths[place] = length
            for layer in self.layers:
                layer.move(last, place)
        if not self._lengths:
            self._fillers.clear()
            for layer in self.layers:
                layer.clear()

    def begin(self) -> None:
        """Prepare one decode step of all rows: offsets, mask, room for one more position."""
        shortest, longest = min(self._lengths), max(self._lengths)
        self.common = longest if shortest == longest else None
        self.width = self.held(longest + 1)
        self.mask = None
        self._write_indices = {}
        if self.common is None:
            self.offsets = mx.array(self._lengths, dtype=mx.int32)
            self.newest = mx.minimum(self.offsets, self.cap - 1) if self.cap else self.offsets
            self.columns = self._columns()
            if self.held(shortest + 1) < self.width and not self.needs_no_mask:
                columns = mx.arange(self.width, dtype=mx.int32)
                self.mask = columns[None, None, None, :] <= self.offsets[:, None, None, None]
        for layer in self.layers:
            layer.widen(self.width)

    def advance(self) -> None:
        """The step was dispatched: every row is one position longer."""
        self._lengths = [length + 1 for length in self._lengths]

    def check(self) -> None:
        """Our own invariants, for tests: every row fits what is allocated, and no byte stays."""
        held = self.held(max(self._lengths, default=0))
        for layer in self.layers:
            assert (layer.keys is None) == (layer.values is None) == (not self._lengths)
            for array in (layer.keys, layer.values):
                if array is not None:
                    assert len(self._lengths) <= array.shape[0] <= self.slots
                    assert held <= array.shape[2] <= (self.cap or array.shape[2])

    def held(self, length: int) -> int:
        """Columns that a row of this length fills."""
        return min(length, self.cap) if self.cap else length

    def room(self, columns: int) -> int:
        """Columns to allocate where so many are needed."""
        return self.held((columns + STEP - 1) // STEP * STEP)

    def _columns(self) -> mx.array:
        """A place without a row writes its first column, which nobody reads."""
        taken = [length % self.cap if self.cap else length for length in self._lengths]
        spare = self.layers[0].places - len(taken)
        return mx.array(taken + [0] * spare, dtype=mx.int32) if spare or self.cap else self.offsets

    def write_index(self, shape: tuple[int, ...]) -> mx.array:
        """The columns broadcast to `[places, heads, 1, dim]`, made once a step and shape."""
        if shape not in self._write_indices:
            self._write_indices[shape] = mx.broadcast_to(self.columns[:, None, None, None], shape)
        return self._write_indices[shape]

    def filler(self, places: int, like: mx.array) -> mx.array:
        """What so many places without a row write."""
        shape = (places, *like.shape[1:])
        if shape not in self._fillers:
            self._fillers[shape] = mx.zeros(shape, dtype=like.dtype)
        return self._fillers[shape]


class _Layer:
    """One layer, with the interface mlx-lm models expect of a cache.

    `keys` and `values` are `[rows, heads, columns, dim]` with room to spare, or None without
    rows.
    """

    def __init__(self, batch: RaggedKV) -> None:
        self._batch = batch
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    @property
    def places(self) -> int:
        return 0 if self.keys is None else self.keys.shape[0]

    @property
    def offset(self) -> mx.array | int:
        """Where RoPE starts: one number, or one per row, int32 `[rows]`."""
        return self._batch.offsets if self._batch.common is None else self._batch.common

    @property
    def unmasked(self) -> mx.array | None:
        """The last column of each row, where attention has to tell them apart by itself: int32
        `[rows]`."""
        is_ragged = self._batch.needs_no_mask and self._batch.common is None
        return self._batch.newest if is_ragged else None

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.keys, self.values) if a is not None)

    def make_mask(
        self, n: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | None:
        assert n == 1 and window_size is None, "ragged rows decode one token over all positions"
        return self._batch.mask

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write each row's `[rows, heads, 1, dim]` in its own column; return all that take
        part."""
        batch, rows = self._batch, keys.shape[0]
        assert self.keys is not None and self.values is not None
        self.keys = _write(self.keys, keys, batch)
        self.values = _write(self.values, values, batch)
        return self.keys[:rows, :, : batch.width], self.values[:rows, :, : batch.width]

    def take(self, place: int, cache: Any, index: int, length: int, rows: int) -> None:
        """Row `index` of the prefilled `cache` into `place`, with room for `rows` rows."""
        if self.keys is None and cache.keys.shape[0] == 1 and not self._batch.cap:
            # The first row alone: its memory is taken over. Handles of our own (`[...]`), since
            # a write changes the handle; shared memory is copied by the first write, if ever.
            self.keys, self.values = cache.keys[...], cache.values[...]
            return
        columns = self._batch.held(length + 1)
        self.keys = self._grown(self.keys, cache.keys, rows, columns)
        self.values = self._grown(self.values, cache.values, rows, columns)
        for target, source in ((self.keys, cache.keys), (self.values, cache.values)):
            # A KVCache holds everything; what is held from a later position on says so.
            self._copy(target, place, source, index, length, getattr(cache, "start", 0))
            # Whoever was here before may have left what is not a number.
            target[place : place + 1, :, self._batch.held(length) :] = 0

    def widen(self, columns: int) -> None:
        assert self.keys is not None and self.values is not None
        self.keys = self._grown(self.keys, self.keys, 1, columns)
        self.values = self._grown(self.values, self.values, 1, columns)

    def move(self, source: int, place: int) -> None:
        """With its clean rest: a column that a mask hides must still be a number, since what it
        holds is multiplied by 0."""
        for array in (self.keys, self.values):
            assert array is not None
            array[place : place + 1] = array[source : source + 1]

    def clear(self) -> None:
        self.keys = self.values = None

    def _grown(self, array: mx.array | None, like: mx.array, rows: int, columns: int) -> mx.array:
        """With at least `rows` and `columns`: rows by doubling, columns by steps."""
        batch = self._batch
        if array is None:
            _, heads, _, dim = like.shape
            return mx.zeros((rows, heads, batch.room(columns), dim), dtype=like.dtype)
        have_rows, _, have_columns, _ = array.shape
        if columns > have_columns:
            array = _pad(array, 2, batch.room(columns) - have_columns)
        if rows > have_rows:
            array = _pad(array, 0, min(batch.slots, max(rows, 2 * have_rows)) - have_rows)
        return array

    def _copy(
        self, target: mx.array, place: int, source: mx.array, index: int, length: int, start: int
    ) -> None:
        """The newest positions that a row holds. `start`: the position of column 0 of `source`.
        A ring takes them in two runs: up to its end, and from its beginning."""
        first = length - self._batch.held(length)
        column = first % self._batch.cap if self._batch.cap else 0
        until = min(length, first - column + self._batch.cap) if self._batch.cap else length
        for begin, end, at in ((first, until, column), (until, length, 0)):
            if begin < end:
                run = source[index : index + 1, :, begin - start : end - start]
                target[place : place + 1, :, at : at + end - begin] = run


def _write(state: mx.array, new: mx.array, batch: RaggedKV) -> mx.array:
    rows, common = new.shape[0], batch.common
    if common is not None:
        column = common % batch.cap if batch.cap else common
        state[:rows, :, column : column + 1] = new
        return state
    spare = state.shape[0] - rows
    if spare:
        # Fewer operations than a scatter into the places in use.
        new = mx.concatenate([new, batch.filler(spare, new)])
    return mx.put_along_axis(state, batch.write_index(new.shape), new, axis=2)


def _pad(array: mx.array, axis: int, more: int) -> mx.array:
    shape = list(array.shape)
    shape[axis] = more
    return mx.concatenate([array, mx.zeros(shape, dtype=array.dtype)], axis=axis)
