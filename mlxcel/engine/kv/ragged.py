"""KV of rows of unequal length, left-aligned: row b holds positions 0..lengths[b]-1.

Layers share one offset array and one mask, computed once a step. A mask is built only when the
rows differ in length: decode attention with a mask costs 2 to 8 times as much on CUDA. Rows
join by a copy into the next free place and leave by moving the last row into the hole, so the
rows that decode are always 0..n-1. The stock mlx-lm model call works on it unchanged.
"""

import mlx.core as mx

from mlxcel.engine.kv.batch import RowCache

STEP = 256
"""Positions are allocated in steps of this many tokens."""


class RaggedKV:
    """All layers' KV. Owned by the decode loop; `len(kv)` is the number of rows."""

    def __init__(self, layers: int, slots: int) -> None:
        self.layers = [_Layer(self) for _ in range(layers)]
        self._slots = slots
        self._lengths: list[int] = []
        self.offsets = mx.array([], dtype=mx.int32)
        self.longest = 0
        self.common: int | None = None
        """The length of every row, where they are all of one length."""
        self._write_indices: dict[tuple[int, ...], mx.array] = {}
        self.mask: mx.array | None = None

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def join(self, row: list[RowCache]) -> None:
        """Copy a prefilled row (one mlx-lm `KVCache` per layer) into the next free place."""
        place = len(self._lengths)
        length = int(row[0].offset)
        self._lengths.append(length)
        for layer, cache in zip(self.layers, row, strict=True):
            layer.reserve(rows=place + 1, positions=length + 1, slots=self._slots, like=cache)
            layer.write_row(place, cache, length)

    def leave(self, place: int) -> None:
        """Free a place; the last row moves into it."""
        last = len(self._lengths) - 1
        length = self._lengths.pop()
        if place != last:
            self._lengths[place] = length
            for layer in self.layers:
                layer.move_row(last, place, length)
        if not self._lengths:
            for layer in self.layers:
                layer.clear()

    def begin(self) -> None:
        """Prepare one decode step of all rows: offsets, mask, room for one more position."""
        lengths = self._lengths
        self.longest = max(lengths)
        self.common = self.longest if min(lengths) == self.longest else None
        self._write_indices = {}
        self.mask = None
        if self.common is None:
            self.offsets = mx.array(lengths, dtype=mx.int32)
            columns = mx.arange(self.longest + 1, dtype=mx.int32)
            self.mask = columns[None, None, None, :] <= self.offsets[:, None, None, None]
        for layer in self.layers:
            layer.reserve(rows=len(lengths), positions=self.longest + 1, slots=self._slots)

    def write_index(self, shape: tuple[int, ...]) -> mx.array:
        """The rows' offsets broadcast to `[rows, heads, 1, dim]`, made once a step and shape."""
        if shape not in self._write_indices:
            offsets = self.offsets[:, None, None, None]
            self._write_indices[shape] = mx.broadcast_to(offsets, shape)
        return self._write_indices[shape]

    def advance(self) -> None:
        """The step was dispatched: every row is one position longer."""
        self._lengths = [length + 1 for length in self._lengths]

    def check(self) -> None:
        """Our own invariants, for tests: every row fits what is allocated."""
        for layer in self.layers:
            if layer.keys is not None:
                rows, _, positions, _ = layer.keys.shape
                assert len(self._lengths) <= rows <= self._slots
                assert max(self._lengths, default=0) <= positions


class _Layer:
    """One layer, with the interface mlx-lm models expect of a cache."""

    def __init__(self, batch: RaggedKV) -> None:
        self._batch = batch
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    @property
    def offset(self) -> mx.array | int:
        """Where RoPE starts: one number, or one per row, int32 `[rows]`."""
        return self._batch.offsets if self._batch.common is None else self._batch.common

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.keys, self.values) if a is not None)

    def make_mask(
        self, n: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | None:
        assert n == 1 and window_size is None, "ragged rows decode one token over all positions"
        return self._batch.mask

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write each row's `[rows, heads, 1, dim]` at its own offset; return all positions."""
        batch, rows = self._batch, keys.shape[0]
        assert self.keys is not None and self.values is not None
        self.keys = _write(self.keys, keys, batch)
        self.values = _write(self.values, values, batch)
        end = batch.longest + 1
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def reserve(
        self, *, rows: int, positions: int, slots: int, like: RowCache | None = None
    ) -> None:
        """Grow to hold `rows` x `positions`: rows by doubling, positions by steps."""
        if self.keys is None or self.values is None:
            assert like is not None
            self.keys = _empty(like.keys, min(slots, rows), _round_up(positions))
            self.values = _empty(like.values, min(slots, rows), _round_up(positions))
            return
        have_rows, _, have_positions, _ = self.keys.shape
        if positions > have_positions:
            more = _round_up(positions) - have_positions
            self.keys, self.values = _pad(self.keys, 2, more), _pad(self.values, 2, more)
        if rows > have_rows:
            more = min(slots, max(rows, 2 * have_rows)) - have_rows
            self.keys, self.values = _pad(self.keys, 0, more), _pad(self.values, 0, more)

    def write_row(self, place: int, row: RowCache, length: int) -> None:
        assert self.keys is not None and self.values is not None
        self.keys[place : place + 1, :, :length] = row.keys[..., :length, :]
        self.values[place : place + 1, :, :length] = row.values[..., :length, :]

    def move_row(self, source: int, place: int, length: int) -> None:
        for array in (self.keys, self.values):
            assert array is not None
            array[place : place + 1, :, :length] = array[source : source + 1, :, :length]

    def clear(self) -> None:
        self.keys = self.values = None


def _write(state: mx.array, new: mx.array, batch: RaggedKV) -> mx.array:
    rows, common = new.shape[0], batch.common
    if common is not None:
        state[:rows, :, common : common + 1] = new
        return state
    if rows == state.shape[0]:
        return mx.put_along_axis(state, batch.write_index(new.shape), new, axis=2)
    # Spare rows: scatter into the ones in use only.
    state[mx.arange(rows), :, batch.offsets] = new[:, :, 0]
    return state


def _round_up(positions: int) -> int:
    return (positions + STEP - 1) // STEP * STEP


def _empty(like: mx.array, rows: int, positions: int) -> mx.array:
    _, heads, _, dim = like.shape
    return mx.zeros((rows, heads, positions, dim), dtype=like.dtype)


def _pad(array: mx.array, axis: int, more: int) -> mx.array:
    shape = list(array.shape)
    shape[axis] = more
    return mx.concatenate([array, mx.zeros(shape, dtype=array.dtype)], axis=axis)
