"""Rows side by side in arrays `[places, heads, columns, any]`: taken in, moved, written, let go.

Column c of a row is its position c. Under a cap the columns are a ring of that many: position p is
in column p % cap, the newest over the oldest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

STEP = 256
"""Columns are allocated in steps of this many."""


@dataclass(frozen=True, slots=True)
class Ring:
    cap: int
    """0: no ring."""

    def held(self, length: int) -> int:
        """Columns that a row of this length fills."""
        return min(length, self.cap) if self.cap else length

    def room(self, columns: int) -> int:
        """Columns to allocate where so many are needed."""
        return self.held((columns + STEP - 1) // STEP * STEP)

    def column(self, position: int) -> int:
        return position % self.cap if self.cap else position


class Writes:
    """Where each place writes in a step; shared by all layers, made once a step."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._column: int | None = None
        """The column of every row, where rows are of one length."""
        self._columns = mx.array([], dtype=mx.int32)
        """Where they are not, the columns of each place, int32 `[places, span]`."""
        self._indices: dict[tuple[int, ...], mx.array] = {}
        self._fillers: dict[tuple[object, ...], mx.array] = {}

    def begin(
        self, lengths: Sequence[int], places: int, offsets: mx.array | None, span: int = 1
    ) -> None:
        """`offsets`: the lengths as an array, int32 `[rows]`; None where they are all equal.
        `span` positions a row; more than one only without a ring."""
        self._indices = {}
        self._column = self._ring.column(lengths[0]) if offsets is None else None
        if offsets is None:
            return
        spare = places - len(lengths)
        if spare or self._ring.cap:
            # A place without a row writes its first column, which nobody reads.
            taken = [self._ring.column(length) for length in lengths]
            offsets = mx.array(taken + [0] * spare, dtype=mx.int32)
        self._columns = offsets[:, None]
        if span > 1:
            self._columns = self._columns + mx.arange(span, dtype=mx.int32)

    def put(self, state: mx.array, new: mx.array) -> mx.array:
        """`state` with each row's `[rows, heads, span, any]` in its own columns."""
        rows, span = new.shape[0], new.shape[2]
        if self._column is not None:
            state[:rows, :, self._column : self._column + span] = new
            return state
        if spare := state.shape[0] - rows:
            # Fewer operations than a scatter into the places in use.
            new = mx.concatenate([new, self._filler(spare, new)])
        return mx.put_along_axis(state, self._index(new.shape), new, axis=2)

    def clear(self) -> None:
        self._fillers.clear()

    def _index(self, shape: tuple[int, ...]) -> mx.array:
        """The columns broadcast to `[places, heads, span, any]`."""
        if shape not in self._indices:
            self._indices[shape] = mx.broadcast_to(self._columns[:, None, :, None], shape)
        return self._indices[shape]

    def _filler(self, places: int, like: mx.array) -> mx.array:
        """What so many places without a row write."""
        shape = (places, *like.shape[1:])
        if (key := (shape, like.dtype)) not in self._fillers:
            self._fillers[key] = mx.zeros(shape, dtype=like.dtype)
        return self._fillers[key]


class Columns:
    """Arrays of one layer, with room to spare; none without rows."""

    def __init__(self, slots: int, ring: Ring) -> None:
        self._slots = slots
        self._ring = ring
        self.arrays: list[mx.array] = []

    @property
    def places(self) -> int:
        return self.arrays[0].shape[0] if self.arrays else 0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def adopt(self, sources: Sequence[mx.array]) -> None:
        """The memory of the only row is taken over. Handles of our own (`[...]`), since a write
        changes the handle; shared memory is copied by the first write, if ever."""
        self.arrays = [source[...] for source in sources]

    def take(
        self, place: int, sources: Sequence[mx.array], index: int, *, length: int, start: int,
        rows: int,
    ) -> None:  # fmt: skip
        """Copy row `index` of the sources, whose column 0 is position `start`, into a place, with
        room for `rows` rows. Positions before `start` are left out."""
        columns = self._ring.held(length + 1)
        targets: Sequence[mx.array | None] = self.arrays or [None] * len(sources)
        self.arrays = [
            self._grown(target, source, rows, columns)
            for target, source in zip(targets, sources, strict=True)
        ]
        for target, source in zip(self.arrays, sources, strict=True):
            self._copy(target, place, source, index, length, start)
            # Whoever was here before may have left what is not a number.
            target[place : place + 1, :, self._ring.held(length) :] = 0

    def widen(self, columns: int) -> None:
        self.arrays = [self._grown(array, array, 1, columns) for array in self.arrays]

    def write(self, new: Sequence[mx.array], writes: Writes) -> None:
        self.arrays = [writes.put(a, n) for a, n in zip(self.arrays, new, strict=True)]

    def seen(self, rows: int, width: int) -> list[mx.array]:
        return [array[:rows, :, :width] for array in self.arrays]

    def move(self, source: int, place: int) -> None:
        """With its clean rest: a column that a mask hides must still be a number, since what it
        holds is multiplied by 0."""
        for array in self.arrays:
            array[place : place + 1] = array[source : source + 1]

    def clear(self) -> None:
        self.arrays = []

    def _grown(self, array: mx.array | None, like: mx.array, rows: int, columns: int) -> mx.array:
        """With at least `rows` and `columns`: rows by doubling, columns by steps."""
        if array is None:
            _, heads, _, dim = like.shape
            return mx.zeros((rows, heads, self._ring.room(columns), dim), dtype=like.dtype)
        have_rows, _, have_columns, _ = array.shape
        if columns > have_columns:
            array = _pad(array, 2, self._ring.room(columns) - have_columns)
        if rows > have_rows:
            array = _pad(array, 0, min(self._slots, max(rows, 2 * have_rows)) - have_rows)
        return array

    def _copy(
        self, target: mx.array, place: int, source: mx.array, index: int, length: int, start: int
    ) -> None:
        """The newest positions that a row holds. A ring takes them in two runs: up to its end,
        and from its beginning."""
        first = length - self._ring.held(length)
        column = self._ring.column(first)
        until = min(length, first - column + self._ring.cap) if self._ring.cap else length
        for begin, end, at in ((first, until, column), (until, length, 0)):
            missing = max(0, start - begin)
            begin, at = begin + missing, at + missing
            if begin < end:
                run = source[index : index + 1, :, begin - start : end - start]
                target[place : place + 1, :, at : at + end - begin] = run


def _pad(array: mx.array, axis: int, more: int) -> mx.array:
    shape = list(array.shape)
    shape[axis] = more
    return mx.concatenate([array, mx.zeros(shape, dtype=array.dtype)], axis=axis)
