"""The tokens a group of rows may draw from, whole vocabularies and heads alike."""

from dataclasses import dataclass, replace
from typing import Self

import mlx.core as mx

from mlxcel.engine.sampling.rowwise import exponential, fused

DEEPEST = -1000.0
"""Scores are cut off here, so that no arithmetic meets an infinity."""
LIGHTEST = 1e-35
"""Weight of a token that is there, however unlikely: 0 means gone."""
LOWEST = -3e38
"""Under every score but that of a banned token."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """All arrays `[rows, width]`. Tokens that tie are in the order of their ids."""

    scores: mx.array
    """Logits less the largest of the row, untempered."""
    weights: mx.array
    """exp(score) of what is kept, 0 elsewhere."""
    ids: mx.array | None
    """Largest logit first; None: the whole vocabulary, where the place is the id."""

    def kept(self, weights: mx.array) -> Self:
        return replace(self, weights=weights)

    def tokens(self, places: mx.array) -> mx.array:
        """`[rows, 1]` places -> ids."""
        return places if self.ids is None else mx.take_along_axis(self.ids, places, axis=-1)

    def touches(self, mask: mx.array, tokens: mx.array) -> mx.array:
        """Whether the mask holds one of the row's `tokens` (`[rows, n]`, -1: none): `[rows, 1]`."""
        if self.ids is None:
            found = mx.take_along_axis(mask, mx.maximum(tokens, 0), axis=-1) & (tokens >= 0)
            return mx.any(found, axis=-1, keepdims=True)
        is_one = mx.any(self.ids[:, :, None] == tokens[:, None, :], axis=-1)
        return mx.any(mask & is_one, axis=-1, keepdims=True)


def candidates(
    logits: mx.array, top: mx.array, least: mx.array, ids: mx.array | None
) -> Candidates:
    """`top` `[rows, 1]` is the row's largest logit; what is under it by more than `least` (from
    `LOWEST` to 0, infinite: gone) and banned ones are gone. A row without a finite `top` has
    nothing."""
    scores, weights = _weighed(logits, top, least)
    return Candidates(scores=scores, weights=weights, ids=ids)


@fused
def _weighed(logits: mx.array, top: mx.array, least: mx.array) -> tuple[mx.array, mx.array]:
    differences = logits.astype(mx.float32) - top.astype(mx.float32)
    scores = mx.maximum(differences, DEEPEST)
    weights = mx.maximum(exponential(scores), LIGHTEST)
    return scores, mx.where(differences >= least, weights, 0.0)
