"""One layer of the rows that decode together, as mlx-lm models expect a cache to be."""

from typing import Any, Protocol

import mlx.core as mx

from mlxcel.engine.kv.codec import LayerCodec
from mlxcel.engine.kv.columns import Columns, Ring, Writes
from mlxcel.engine.kv.parts import columns_of, parts_of
from mlxcel.engine.kv.recent import Recent


class Step(Protocol):
    """What the layers of a batch share in one decode step."""

    needs_no_mask: bool
    is_steady: bool
    common: int | None
    offsets: mx.array
    newest: mx.array
    width: int
    span: int
    mask: mx.array | None
    writes: Writes


class Layer:
    """`codec` None: KV is kept as the model makes it."""

    def __init__(
        self,
        step: Step,
        slots: int,
        ring: Ring,
        *,
        codec: LayerCodec | None = None,
        recent: Recent | None = None,
    ) -> None:
        """`recent`: the newest values are kept as they are besides."""
        self._step = step
        self._is_ring = bool(ring.cap)
        self._codec = codec
        self._recent = recent
        self.kept = Columns(slots, ring)
        self.newest = Columns(slots, recent.ring) if recent else None

    @property
    def keys(self) -> mx.array:
        """`[places, heads, columns, dim]`, of a layer without codec that has rows."""
        return self.kept.arrays[0]

    @property
    def values(self) -> mx.array:
        return self.kept.arrays[1]

    @property
    def offset(self) -> mx.array | int:
        """Where RoPE starts: one number, or one per row, int32 `[rows]`."""
        return self._step.offsets if self._step.common is None else self._step.common

    @property
    def unmasked(self) -> mx.array | None:
        """The last column of each row, where attention has to tell them apart by itself: int32
        `[rows]`."""
        is_ragged = self._step.common is None and self._step.span == 1 and self._step.needs_no_mask
        return self._step.newest if is_ragged else None

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes + (0 if self.newest is None else self.newest.nbytes)

    def make_mask(
        self, n: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        assert n == self._step.span and window_size is None, "ragged rows see all their positions"
        is_even = self._step.common is not None and not self._step.is_steady
        if n > 1 and is_even and not return_array:
            return "causal"
        return self._step.mask

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write each row's `[rows, heads, span, dim]` in its own columns; return all that take
        part."""
        step, codec, rows = self._step, self._codec, keys.shape[0]
        if codec is None:
            self.kept.write((keys, values), step.writes)
            all_keys, all_values = self.kept.seen(rows, step.width)
            return all_keys, all_values
        self.kept.write(codec.encode(keys, values), step.writes)
        all_keys, all_values = codec.decode(self.kept.seen(rows, step.width), keys.dtype)
        if self._recent is not None and self.newest is not None:
            self.newest.write((values,), self._recent.writes)
            all_values = self._recent.over(all_values, self.newest)
        return all_keys, all_values

    def take(self, place: int, cache: Any, index: int, length: int, rows: int) -> None:
        """Row `index` of the prefilled `cache` into `place`, with room for `rows` rows."""
        parts = parts_of(cache)
        if not self.kept.arrays and parts[0].shape[0] == 1 and not self._is_ring:
            self.kept.adopt(parts)
        else:
            # A KVCache holds everything; what is held from a later position on says so.
            start = getattr(cache, "start", 0)
            self.kept.take(place, parts, index, length=length, start=start, rows=rows)
        if self.newest is not None:
            start = cache.recent_start
            self.newest.take(place, [cache.recent], index, length=length, start=start, rows=rows)

    def extract(self, place: int, start: int, stop: int) -> tuple[mx.array, ...]:
        return columns_of(self.kept.arrays, place, start, stop)

    def widen(self, columns: int) -> None:
        self.kept.widen(columns)

    def move(self, source: int, place: int) -> None:
        for columns in self._all():
            columns.move(source, place)

    def clear(self) -> None:
        for columns in self._all():
            columns.clear()

    def check(self, rows: int, held: int, slots: int, cap: int) -> None:
        for columns in self._all():
            assert bool(columns.arrays) == bool(rows)
        for array in self.kept.arrays:
            assert rows <= array.shape[0] <= slots
            assert held <= array.shape[2] <= (cap or array.shape[2])

    def _all(self) -> list[Columns]:
        return [self.kept] if self.newest is None else [self.kept, self.newest]
