"""KV of a run of tokens, as it is kept: arrays of its own, shared with nothing that is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import mlx.core as mx

TOKEN_AXIS = 2
Layers = tuple[tuple[mx.array, ...], ...]
"""For each layer the arrays that hold its KV, `[1, heads, tokens, any]`: keys and values, or what
a KV mode makes of them."""


class Payload(Protocol):
    """What the store needs to know of what it holds: it is cut, counted and dropped."""

    @property
    def tokens(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def cut(self, start: int, stop: int) -> Self:
        """A copy of a part; the rest may be forgotten."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Immutable. The arrays are never handed to a model: slice assignment would change them for
    every holder (engine contract, cache 5)."""

    layers: Layers
    tokens: int

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for layer in self.layers for part in layer)

    def cut(self, start: int, stop: int) -> "Segment":
        """Contiguous copies: a slice alone would keep the whole alive."""
        if (start, stop) == (0, self.tokens):
            return self
        return Segment(copied(self.layers, start, stop), stop - start)


def copied(layers: Sequence[Sequence[mx.array]], start: int, stop: int) -> Layers:
    """Columns start..stop of each array, not evaluated."""
    return tuple(tuple(copy_of(part[:, :, start:stop]) for part in layer) for layer in layers)


def copy_of(array: mx.array) -> mx.array:
    """Contiguous, in memory of its own. `mx.contiguous` keeps the buffer of a slice that is
    contiguous already, as those of one KV head are, when it is at most 16 KiB too large."""
    return mx.concatenate([array, array[:, :, :0]], axis=TOKEN_AXIS)


def joined(pieces: Sequence[tuple[Segment, int]], *, room: int) -> Layers:
    """The first tokens of each segment, one behind the other, with zeros up to `room` columns:
    new arrays that may be written. Not evaluated."""
    tokens = sum(count for _, count in pieces)
    more = max(0, room - tokens)
    layers = zip(*(_first(segment, count) for segment, count in pieces), strict=True)
    return tuple(
        tuple(_joined(parts, more) for parts in zip(*layer, strict=True)) for layer in layers
    )


def _first(segment: Segment, count: int) -> Layers:
    if count == segment.tokens:
        return segment.layers
    return tuple(tuple(part[:, :, :count] for part in layer) for layer in segment.layers)


def _joined(parts: Sequence[mx.array], more: int) -> mx.array:
    first = parts[0]
    shape = (*first.shape[:TOKEN_AXIS], more, *first.shape[TOKEN_AXIS + 1 :])
    # Two arrays at least, be one of them empty: a single one would be handed back as it is.
    return mx.concatenate([*parts, mx.zeros(shape, dtype=first.dtype)], axis=TOKEN_AXIS)
