"""Steps 6 to 11 of the chain: which tokens of a row may be drawn.

Everything works on the untempered distribution, one step after the other, each on what the one
before has left. A step that some rows of the group have leaves the others bit for bit alone.

`min_keep` is a floor under typical, top-p, min-p and XTC, as in llama.cpp: the first so many, in
the order of the step, stay whatever their mass; XTC takes nothing away where fewer would be left.
Top-k and top-n-sigma have no floor there, nor here.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.sampling.candidates import DEEPEST, LIGHTEST, LOWEST, Candidates
from mlxcel.engine.sampling.foremost import SORTED, foremost, leading
from mlxcel.engine.sampling.rowwise import column, fused, peak, total

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


class Spread:
    """Top-n-sigma, which measures the whole vocabulary whatever is sampled from."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        self._sigma = column([row.top_n_sigma for row in rows])

    def __call__(self, logits: mx.array, top: mx.array) -> mx.array:
        """How far below the largest logit one may be: `[rows, 1]`, `LOWEST` without a bound.
        Banned tokens have no part in the spread."""
        is_in = logits > -mx.inf
        count = mx.sum(is_in, axis=-1, keepdims=True)
        mean = total(mx.where(is_in, logits - top, 0.0)) / count
        square = total(mx.where(is_in, mx.square(logits - (top + mean)), 0.0))
        return mx.where(self._sigma > 0, -self._sigma * mx.sqrt(square / count), LOWEST)


class Truncation:
    """Steps 7 to 11, for rows that are sampled over the same width. Heads come with step 7 done
    and the likeliest first."""

    def __init__(self, rows: Sequence[SamplingParams], *, is_head: bool) -> None:
        counts = [mx.inf if is_head else row.top_k or mx.inf for row in rows]
        self._top_k = _shares(counts, off=mx.inf)
        self._typical = _shares([row.typical_p for row in rows], off=1.0)
        self._top_p = _shares([row.top_p for row in rows], off=1.0)
        self._min_p = column([row.min_p for row in rows])
        self._has_min_p = any(row.min_p > 0 for row in rows)
        self._xtc = ExcludeTop(rows) if any(row.xtc_probability > 0 for row in rows) else None
        has_floor = any(row.min_keep > 1 for row in rows)
        self._floor = column([max(row.min_keep, 1) for row in rows]) if has_floor else None

    @property
    def needs_chance(self) -> bool:
        return self._xtc is not None

    @property
    def keeps_top(self) -> bool:
        """Whether the likeliest token of each row is sure to stay."""
        return self._xtc is None and self._typical is None

    def __call__(self, some: Candidates, chance: mx.array | None) -> Candidates:
        """At least one token of each row survives. `chance` `[rows, 1]` decides on XTC."""
        if self._top_k is not None:
            some = some.kept(counted(some.scores, some.weights, self._top_k))
        if self._typical is not None:
            some = some.kept(_typical(some, self._typical, self._floor))
        if self._top_p is not None:
            some = some.kept(self._above_floor(some, _nucleus(some, self._top_p)))
        if self._has_min_p:
            w = some.weights
            # The likeliest weighs 1; typical may have taken it away.
            least = self._min_p if self._typical is None else self._min_p * peak(w)
            some = some.kept(self._above_floor(some, _at_least(w, least)))
        if self._xtc is not None and chance is not None:
            some = some.kept(self._xtc(some, chance))
        return some

    def _above_floor(self, some: Candidates, left: mx.array) -> mx.array:
        """`left`, the weights a step leaves of `some`, and the likeliest that have to stay."""
        if self._floor is None:
            return left
        if some.ids is not None:
            return _with_floor(left, _first(some.weights, self._floor), self._floor)
        return _with_floor(left, counted(some.scores, some.weights, self._floor), self._floor)


class ExcludeTop:
    """XTC: of the tokens above the threshold only the least likely stays, unless a spared one
    (newline, end of text) would go."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        self._probability = column([row.xtc_probability for row in rows])
        self._threshold = column([row.xtc_threshold for row in rows])
        self._spared = _table([row.xtc_spared for row in rows])
        has_floor = any(row.min_keep > 1 for row in rows)
        self._floor = column([row.min_keep for row in rows]) if has_floor else None

    def __call__(self, some: Candidates, chance: mx.array) -> mx.array:
        w = some.weights
        above = w >= mx.maximum(self._threshold * total(w), LIGHTEST)
        least = -peak(-mx.where(above, w, mx.inf))
        place = mx.arange(w.shape[-1])[None]
        last = peak(mx.where(w == least, place, -1))
        dropped = above & (place != last)
        is_on = chance < self._probability
        if self._spared is not None:
            is_on = is_on & ~some.touches(dropped, self._spared)
        if self._floor is not None:
            is_left = (w > 0) & ~dropped
            is_on = is_on & (mx.sum(is_left, axis=-1, keepdims=True) >= self._floor)
        return mx.where(dropped & is_on, 0.0, w)


@fused
def _at_least(weights: mx.array, least: mx.array) -> mx.array:
    """Min-p."""
    return mx.where(weights >= least, weights, 0.0)


@fused
def _first(weights: mx.array, count: mx.array) -> mx.array:
    """The weights of the first `count` that are there, of a head."""
    is_there = weights > 0
    before = mx.cumsum(is_there.astype(mx.float32), axis=-1) - is_there
    return mx.where(before < count, weights, 0.0)


@fused
def _with_floor(left: mx.array, first: mx.array, floor: mx.array) -> mx.array:
    return mx.where(floor > 1, mx.maximum(left, first), left)


def counted(scores: mx.array, weights: mx.array, count: mx.array) -> mx.array:
    """The weights of the `count` largest scores, 0 elsewhere."""
    is_there = (weights > 0).astype(mx.float32)
    least = -peak(-mx.where(weights > 0, scores, 0.0))
    return weights * foremost(scores, is_there, count, least)


def _nucleus(some: Candidates, share: mx.array) -> mx.array:
    """Top-p: the likeliest first."""
    w = some.weights
    if some.ids is not None:
        return leading(w, share)
    mass = total(w)
    return foremost(some.scores, w, share * mass, _least(some, share, mass))


def _typical(some: Candidates, share: mx.array, floor: mx.array | None) -> mx.array:
    """Locally typical sampling (Meister et al., 2022): nearest to the entropy first. The distance
    of -log p from it is that of the score from the mean score. `floor`: so many stay at least."""
    w = some.weights
    mass = total(w)
    mean = total(w * some.scores) / mass
    keys = -mx.abs(some.scores - mean)
    if keys.shape[-1] <= SORTED:
        left = foremost(keys, w, share * mass)
    else:
        widest = mx.maximum(-mean, mean - _least(some, share, mass))
        left = foremost(keys, w, share * mass, -widest)
    return left if floor is None else _with_floor(left, counted(keys, w, floor), floor)


def _least(some: Candidates, share: mx.array, mass: mx.array) -> mx.array:
    """The score under which all tokens of a vocabulary together cannot hold the rest of the mass:
    1 - share."""
    rest = mx.maximum(1 - share, ALMOST_ZERO)
    return mx.maximum(mx.log(rest * mass / some.weights.shape[-1]), DEEPEST)


def _shares(values: Sequence[float], off: float) -> mx.array | None:
    """More than 0, infinite where a row has none; None when no row has one."""
    if all(value >= off for value in values):
        return None
    return column([max(v, ALMOST_ZERO) if v < off else mx.inf for v in values])


def _table(rows: Sequence[tuple[int, ...]]) -> mx.array | None:
    """`[rows, most]`, -1 where a row has fewer."""
    most = max(len(row) for row in rows)
    if most == 0:
        return None
    return mx.array([[*row, *[-1] * (most - len(row))] for row in rows])
