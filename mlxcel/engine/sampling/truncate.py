"""Steps 6 to 11 of the chain: which of the ranked tokens of a row may be drawn.

Everything works on the untempered distribution, one step after the other, each on what the one
before has left. `ranked` is float32 `[rows, width]`, largest first, -inf for what is banned.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxcel.core.request import SamplingParams

ALMOST_ZERO = 1e-9


def is_truncated(row: SamplingParams) -> bool:
    """Whether a row may draw from less than the whole vocabulary."""
    return (
        row.top_k > 0
        or row.top_p < 1
        or row.min_p > 0
        or row.typical_p < 1
        or row.top_n_sigma > 0
        or row.xtc_probability > 0
    )


class Truncation:
    """For rows that are sampled over the same width."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        self._top_k = mx.array([[row.top_k] for row in rows])
        self._typical = column([row.typical_p for row in rows])
        self._top_p = column([max(row.top_p, ALMOST_ZERO) for row in rows])
        self._min_p = column([row.min_p for row in rows])
        self._xtc_probability = column([row.xtc_probability for row in rows])
        self._xtc_threshold = column([row.xtc_threshold for row in rows])
        self._has_typical = any(row.typical_p < 1 for row in rows)
        self._has_xtc = any(row.xtc_probability > 0 for row in rows)
        self._sigma = column([row.top_n_sigma for row in rows])
        self._has_sigma = any(row.top_n_sigma > 0 for row in rows)
        self._spared = tuple(row.xtc_spared for row in rows)

    def __call__(
        self, logits: mx.array, ranked: mx.array, ids: mx.array, xtc_draws: mx.array
    ) -> mx.array:
        """Boolean `[rows, width]`; at least one token of each row survives. `logits` are of the
        whole vocabulary: top-n-sigma measures their spread."""
        rank = mx.arange(ranked.shape[-1])[None]
        kept = ((rank < self._top_k) | (self._top_k == 0)) & (ranked > -mx.inf)
        if self._has_sigma:
            kept = kept & (ranked >= self._least(logits, ranked[:, :1]))
        if self._has_typical:
            kept = self._typical_kept(ranked, kept)
        kept = self._nucleus(ranked, kept)
        p = probabilities(ranked, kept)
        kept = kept & (p >= self._min_p * mx.max(p, axis=-1, keepdims=True))
        if self._has_xtc:
            kept = self._without_top_choices(ranked, kept, ids, xtc_draws)
        return kept

    def _least(self, logits: mx.array, largest: mx.array) -> mx.array:
        """Top-n-sigma: the least logit that stays, -inf where a row has none. Banned tokens have
        no part in the spread."""
        is_in = logits > -mx.inf
        count = mx.sum(is_in, axis=-1, keepdims=True)
        mean = mx.sum(mx.where(is_in, logits, 0.0), axis=-1, keepdims=True) / count
        square = mx.where(is_in, mx.square(logits - mean), 0.0)
        spread = mx.sqrt(mx.sum(square, axis=-1, keepdims=True) / count)
        return mx.where(self._sigma > 0, largest - self._sigma * spread, -mx.inf)

    def _nucleus(self, ranked: mx.array, kept: mx.array) -> mx.array:
        p = probabilities(ranked, kept)
        return kept & (mx.cumsum(p, axis=-1) - p < self._top_p)

    def _typical_kept(self, ranked: mx.array, kept: mx.array) -> mx.array:
        """Locally typical sampling (Meister et al., 2022): nearest to the entropy first."""
        p = probabilities(ranked, kept)
        surprise = -mx.log(mx.maximum(p, ALMOST_ZERO))
        entropy = mx.sum(p * surprise, axis=-1, keepdims=True)
        distance = mx.where(kept, mx.abs(surprise - entropy), mx.inf)
        order = mx.argsort(distance, axis=-1)
        sorted_p = mx.take_along_axis(p, order, axis=-1)
        enough = mx.cumsum(sorted_p, axis=-1) - sorted_p < self._typical
        chosen = mx.put_along_axis(mx.zeros_like(enough), order, enough, axis=-1)
        return kept & (chosen | (self._typical >= 1))

    def _without_top_choices(
        self, ranked: mx.array, kept: mx.array, ids: mx.array, draws: mx.array
    ) -> mx.array:
        """Exclude top choices: of the tokens above the threshold only the least likely stays,
        unless a spared one (newline, end of text) would go."""
        p = probabilities(ranked, kept)
        above = kept & (p >= self._xtc_threshold)
        rank = mx.arange(ranked.shape[-1])[None]
        last = mx.max(mx.where(above, rank, -1), axis=-1, keepdims=True)
        dropped = above & (rank < last)
        hits = dropped & self._is_spared(ids)
        is_on = (draws < self._xtc_probability) & ~mx.any(hits, axis=-1, keepdims=True)
        return kept & ~(dropped & is_on)

    def _is_spared(self, ids: mx.array) -> mx.array:
        most = max((len(spared) for spared in self._spared), default=0)
        if most == 0:
            return mx.zeros(ids.shape, dtype=mx.bool_)
        padded = mx.array([[*row, *[-1] * (most - len(row))] for row in self._spared])
        return mx.any(ids[:, :, None] == padded[:, None, :], axis=-1)


def probabilities(ranked: mx.array, kept: mx.array) -> mx.array:
    """The distribution over what is kept; zero elsewhere."""
    return mx.softmax(mx.where(kept, ranked, -mx.inf), axis=-1, precise=True)


def column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None]
