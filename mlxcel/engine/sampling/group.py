"""Rows of one kind, sampled over the same width.

The arithmetic of a row never depends on its neighbours: rows with a small top-k work on a head
of fixed width, other truncated rows on the whole vocabulary in order of likelihood, untruncated
rows on it as it is.
"""

from collections.abc import Sequence
from enum import Enum

import mlx.core as mx
import numpy as np

from mlxcel.core.request import SamplingParams
from mlxcel.engine.sampling.draws import XTC_SALT, uniforms
from mlxcel.engine.sampling.truncate import Truncation, column, is_truncated

HEAD = 64
"""Rows with 0 < top_k <= HEAD are sampled from their HEAD most likely tokens."""


class Kind(Enum):
    """How a row is sampled: a property of its own parameters alone."""

    GREEDY = 0
    HEAD = 1
    RANKED = 2
    PLAIN = 3


def kind_of(row: SamplingParams) -> Kind:
    if row.is_greedy:
        return Kind.GREEDY
    if 0 < row.top_k <= HEAD:
        return Kind.HEAD
    return Kind.RANKED if is_truncated(row) else Kind.PLAIN


class Group:
    """The rows in `places` of the batch, all of one kind."""

    def __init__(self, kind: Kind, rows: Sequence[SamplingParams], places: list[int]) -> None:
        chosen = [rows[i] for i in places]
        self._kind = kind
        self._places = places
        self._temperature = column([row.temperature for row in chosen])
        self._truncation = Truncation(chosen)

    def __call__(self, logits: mx.array, seeds: np.ndarray, positions: np.ndarray) -> mx.array:
        """`logits`, seeds and positions of the whole batch -> tokens of these rows."""
        if len(self._places) < logits.shape[0]:
            logits = logits[mx.array(self._places)]
        if self._kind is Kind.GREEDY:
            return mx.argmax(logits, axis=-1)
        seeds, positions = seeds[self._places], positions[self._places]
        draw = _drawn(seeds, positions)
        if self._kind is Kind.PLAIN:
            last = logits.shape[-1] - 1
            return _inverted(logits / self._temperature, last, draw)[:, 0]
        return self._ranked(logits, draw, _drawn(seeds ^ XTC_SALT, positions))

    def _ranked(self, logits: mx.array, draw: mx.array, xtc_draw: mx.array) -> mx.array:
        ids = _ranking(logits, HEAD if self._kind is Kind.HEAD else logits.shape[-1])
        ranked = mx.take_along_axis(logits, ids, axis=-1)
        kept = self._truncation(logits, ranked, ids, xtc_draw)
        tempered = mx.where(kept, ranked / self._temperature, -mx.inf)
        rank = mx.arange(ranked.shape[-1])[None]
        last = mx.max(mx.where(kept, rank, 0), axis=-1, keepdims=True)
        return mx.take_along_axis(ids, _inverted(tempered, last, draw), axis=-1)[:, 0]


def _drawn(seeds: np.ndarray, positions: np.ndarray) -> mx.array:
    """A number in [0, 1) for each row: float32 `[rows, 1]`."""
    return mx.array(uniforms(seeds, positions), dtype=mx.float32)[:, None]


def _inverted(logits: mx.array, last: mx.array | int, draw: mx.array) -> mx.array:
    """Where the cumulative mass passes the draw; never beyond `last`, whatever the rounding."""
    mass = mx.cumsum(mx.softmax(logits, axis=-1, precise=True), axis=-1)
    return mx.minimum(mx.sum(mass <= draw * mass[:, -1:], axis=-1, keepdims=True), last)


def _ranking(logits: mx.array, width: int) -> mx.array:
    """Token ids of the `width` largest logits of each row, largest first."""
    if width >= logits.shape[-1]:
        return mx.argsort(-logits, axis=-1)
    head = mx.argpartition(-logits, kth=width - 1, axis=-1)[:, :width]
    order = mx.argsort(-mx.take_along_axis(logits, head, axis=-1), axis=-1)
    return mx.take_along_axis(head, order, axis=-1)
