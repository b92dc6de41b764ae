"""KV of rows of unequal length, left-aligned: column c of row b is position c.

Layers share one offset array and one mask, computed once a step. A mask is built only where
rows hold unequal numbers of positions: decode attention with a mask costs 2 to 8 times as much
on CUDA. Rows join by a copy into the next free place and leave by moving the last row into the
hole, so the rows that decode are always 0..n-1. The stock mlx-lm model call works on it
unchanged.

Under a cap (`max_kv_size`) the columns are a ring: softmax does not ask for an order, and RoPE
went in with the true position; so full rows need no mask, whatever their lengths. Layers may keep
their KV in another form than the model made it in (`LayerCodec`).
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxcel.engine.cache.segment import Layers
from mlxcel.engine.kv.codec import LayerCodec
from mlxcel.engine.kv.columns import Ring, Writes
from mlxcel.engine.kv.layer import Layer
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.recent import Recent
from mlxcel.engine.kv.steady import room


class RaggedKV:
    """All layers' KV. Owned by the decode loop; `len(kv)` is the number of rows.

    `cap` 0: rows hold all their positions.
    """

    keeps_columns = True
    can_replay = False

    def __init__(
        self,
        layers: int,
        slots: int,
        *,
        cap: int = 0,
        needs_no_mask: bool = False,
        codecs: Sequence[LayerCodec | None] = (),
        is_steady: bool = False,
    ) -> None:
        """`needs_no_mask`: the model's attention knows rows of unequal length (`attend`).
        `is_steady`: steps of several positions come in few shapes (`steady`).
        `codecs`: one a layer; none at all: KV is kept as it is."""
        self.needs_no_mask = needs_no_mask
        self.is_steady = is_steady
        self.slots = slots
        self.cap = cap
        self.ring = Ring(cap)
        windows = {codec.recent for codec in codecs if codec is not None and codec.recent}
        assert not (windows and cap), "recent values are at their true positions"
        self._recent = Recent(*windows) if windows else None
        self.layers = [self._layer(codec) for codec in (codecs or [None] * layers)]
        self._lengths: list[int] = []
        self.common: int | None = None
        """The length of every row, where they are all of one length."""
        self.offsets = mx.array([], dtype=mx.int32)
        """Where they are not, the lengths, int32 `[rows]`."""
        self.writes = Writes(self.ring)
        self.newest = self.offsets
        """The last column each row holds in this step, int32 `[rows]`."""
        self.width = 0
        """Columns that take part in this step: those of the longest row, new ones included."""
        self.span = 1
        """Positions that each row is given in this step."""
        self.mask: mx.array | None = None

    @property
    def label(self) -> str:
        return "native batched forward" + (", ragged kernel" if self.needs_no_mask else "")

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def join(self, prefilled: Prefilled, index: int = 0) -> None:
        """Copy a row into the next free place. Its layers are row caches of the same plan
        (`row_caches`, `caches_from`); nothing is evaluated."""
        place = len(self._lengths)
        length = prefilled.lengths[index]
        # The rest of a cohort is about to follow: room for it now saves growing once a row.
        rows = min(self.slots, place + len(prefilled.lengths) - index)
        self._lengths.append(length)
        if self._recent:
            self._recent.join(prefilled.caches, length)
        for layer, cache in zip(self.layers, prefilled.caches, strict=True):
            layer.take(place, cache, index, length, rows)

    def leave(self, place: int) -> None:
        """Free a place; the last row moves into it."""
        last = len(self._lengths) - 1
        length = self._lengths.pop()
        if self._recent:
            self._recent.leave(place)
        if place != last:
            self._lengths[place] = length
            for layer in self.layers:
                layer.move(last, place)
        if not self._lengths:
            self.writes.clear()
            for layer in self.layers:
                layer.clear()

    def extract(self, place: int, start: int, stop: int) -> Layers:
        """Copies of a row's columns, not evaluated. Not of a row that `has_dropped` some."""
        assert stop <= self._lengths[place] and not self.has_dropped(place)
        return tuple(layer.extract(place, start, stop) for layer in self.layers)

    def seen(self, place: int, start: int, stop: int) -> tuple[mx.array, mx.array]:
        """Of the last layer, which is kept as it is."""
        assert stop <= self._lengths[place] and not self.has_dropped(place)
        keys, values = self.layers[-1].extract(place, start, stop)
        return keys, values

    def has_dropped(self, place: int) -> bool:
        """Whether the ring has gone round: column c is not position c any more."""
        return bool(self.cap) and self._lengths[place] > self.cap

    @property
    def can_rewind(self) -> bool:
        """Whether rows can be given more positions than they keep."""
        return not self.cap and self._recent is None

    def begin(self, span: int = 1) -> None:
        """Prepare one step of all rows: offsets, mask, room for `span` more positions."""
        assert span == 1 or self.can_rewind
        shortest, longest = min(self._lengths), max(self._lengths)
        self.span = span
        self.common = longest if shortest == longest else None
        is_wide = span > 1
        steady = is_wide and self.is_steady
        self.width = room(longest + span) if steady else self.ring.held(longest + span)
        self.mask = None
        if self.common is None:
            self.offsets = mx.array(self._lengths, dtype=mx.int32)
            self.newest = mx.minimum(self.offsets, self.cap - 1) if self.cap else self.offsets
            if is_wide:
                self.mask = self._staircase(self.offsets)
            elif self.ring.held(shortest + 1) < self.width and not self.needs_no_mask:
                columns = mx.arange(self.width, dtype=mx.int32)
                self.mask = columns[None, None, None, :] <= self.offsets[:, None, None, None]
        elif is_wide:
            self.mask = self._staircase(mx.array([self.common], dtype=mx.int32))
        self._begin_writes(None if self.common is not None else self.offsets)
        for layer in self.layers:
            layer.widen(self.width)

    def advance(self, kept: Sequence[int] | None = None) -> None:
        """The step was dispatched: every row is so many positions longer; None: one. Those that
        it was given besides are written over."""
        kept = kept or [1] * len(self._lengths)
        assert max(kept) <= self.span
        self._lengths = [n + more for n, more in zip(self._lengths, kept, strict=True)]

    def check(self) -> None:
        """Our own invariants, for tests: every row fits what is allocated, and no byte stays."""
        held = self.ring.held(max(self._lengths, default=0))
        for layer in self.layers:
            layer.check(len(self._lengths), held, self.slots, self.cap)

    def _layer(self, codec: LayerCodec | None) -> Layer:
        recent = self._recent if codec is not None and codec.recent else None
        return Layer(self, self.slots, self.ring, codec=codec, recent=recent)

    def _staircase(self, offsets: mx.array) -> mx.array:
        """bool `[rows, 1, span, width]`: each position sees those before it, and itself."""
        columns = mx.arange(self.width, dtype=mx.int32)
        newest = offsets[:, None] + mx.arange(self.span, dtype=mx.int32)
        return columns[None, None, None, :] <= newest[:, None, :, None]

    def _begin_writes(self, offsets: mx.array | None) -> None:
        self.writes.begin(self._lengths, self.layers[0].kept.places, offsets, self.span)
        if self._recent is not None:
            places = next(layer.newest.places for layer in self.layers if layer.newest is not None)
            self._recent.begin(self._lengths, self.width, places, offsets)
