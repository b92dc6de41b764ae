"""One token for each row, vectorised over rows with per-row parameters.

Order: top-k, top-p, min-p on the untempered distribution, then temperature, then the draw
(engine contract, generation 2). A draw inverts the cumulative distribution at one number that
depends on (seed, position) alone and is made on the host, so that the same seed gives the same
text on every backend, alone and in any batch. The arithmetic of a row never depends on its
neighbours: rows with a small top-k work on a head of fixed width, other truncated rows on the
whole vocabulary in order of likelihood, untruncated rows on it as it is.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

import mlx.core as mx
import numpy as np

from mlxcel.core.request import SamplingParams

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
    is_truncated = row.top_k > 0 or row.top_p < 1 or row.min_p > 0
    return Kind.RANKED if is_truncated else Kind.PLAIN


class BatchSampler:
    """Draws for a fixed list of rows; made anew when rows join or leave."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        self._seeds = np.array([row.seed for row in rows], dtype=np.uint64)
        places = {kind: [i for i, row in enumerate(rows) if kind_of(row) is kind] for kind in Kind}
        self._greedy = places[Kind.GREEDY]
        drawn = (Kind.HEAD, Kind.RANKED, Kind.PLAIN)
        self._groups = [_Group(rows, places[kind], kind) for kind in drawn if places[kind]]
        order = [i for kind in Kind for i in places[kind]]
        self._order = [order.index(i) for i in range(len(rows))]

    def __call__(self, logits: mx.array, positions: Sequence[int]) -> mx.array:
        """`logits` `[rows, vocab]` and the output position of each row -> tokens `[rows]`."""
        parts = []
        if self._greedy:
            parts.append(mx.argmax(_rows(logits, self._greedy), axis=-1))
        if self._groups:
            draws = uniforms(self._seeds, np.array(positions, dtype=np.uint64))
            parts.extend(group(logits, draws) for group in self._groups)
        if len(parts) == 1:
            return parts[0].astype(mx.int32)
        return mx.concatenate(parts)[mx.array(self._order)].astype(mx.int32)


class _Group:
    """Rows that are sampled over the same width."""

    def __init__(self, rows: Sequence[SamplingParams], places: list[int], kind: Kind) -> None:
        chosen = [rows[i] for i in places]
        self._places = places
        self._kind = kind
        self._top_k = mx.array([[row.top_k] for row in chosen])
        self._top_p = _column(row.top_p for row in chosen)
        self._min_p = _column(row.min_p for row in chosen)
        self._temperature = _column(row.temperature for row in chosen)

    def __call__(self, logits: mx.array, draws: np.ndarray) -> mx.array:
        logits = _rows(logits, self._places).astype(mx.float32)
        if self._kind is Kind.PLAIN:
            return self._draw(logits / self._temperature, logits.shape[-1] - 1, draws)[:, 0]
        ids = _ranked(logits, HEAD if self._kind is Kind.HEAD else logits.shape[-1])
        ranked = mx.take_along_axis(logits, ids, axis=-1)
        kept = self._truncate(ranked)
        tempered = mx.where(kept, ranked / self._temperature, -mx.inf)
        # The kept tokens are a prefix of the ranking.
        last = mx.sum(kept, axis=-1, keepdims=True) - 1
        return mx.take_along_axis(ids, self._draw(tempered, last, draws), axis=-1)[:, 0]

    def _draw(self, logits: mx.array, last: mx.array | int, draws: np.ndarray) -> mx.array:
        """The place where the cumulative mass passes the draw; never beyond `last`, whatever
        the rounding."""
        mass = mx.cumsum(mx.softmax(logits, axis=-1, precise=True), axis=-1)
        draw = mx.array(draws[self._places], dtype=mx.float32)[:, None]
        return mx.minimum(mx.sum(mass <= draw * mass[:, -1:], axis=-1, keepdims=True), last)

    def _truncate(self, ranked: mx.array) -> mx.array:
        """Which ranks survive top-k, top-p and min-p; rank 0 always does."""
        rank = mx.arange(ranked.shape[-1])[None]
        kept = (rank < self._top_k) | (self._top_k == 0)
        p = mx.softmax(mx.where(kept, ranked, -mx.inf), axis=-1, precise=True)
        before = mx.cumsum(p, axis=-1) - p
        kept = kept & (before < self._top_p) & (p >= self._min_p * p[:, :1])
        return kept | (rank == 0)


def uniforms(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1) that depend on (seed, position) alone: splitmix64 of both, 24 bits.

    24 bits, so that the number is exact in float32. (Steele, Lea, Flood: Fast Splittable
    Pseudorandom Number Generators, 2014.)
    """
    with np.errstate(over="ignore"):
        return (_mix(_mix(seeds) + positions) >> np.uint64(40)).astype(np.float64) / (1 << 24)


def _mix(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _ranked(logits: mx.array, width: int) -> mx.array:
    """Token ids of the `width` largest logits of each row, largest first."""
    if width >= logits.shape[-1]:
        return mx.argsort(-logits, axis=-1)
    head = mx.argpartition(-logits, kth=width - 1, axis=-1)[:, :width]
    order = mx.argsort(-mx.take_along_axis(logits, head, axis=-1), axis=-1)
    return mx.take_along_axis(head, order, axis=-1)


def _column(values: Iterable[float]) -> mx.array:
    return mx.array(list(values))[:, None]


def _rows(logits: mx.array, places: list[int]) -> mx.array:
    return logits if len(places) == logits.shape[0] else logits[mx.array(places)]
