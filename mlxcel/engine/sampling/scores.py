"""Log-probabilities of what was said and of the likeliest tokens, for the rows that ask."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxcel.engine.sampling.head import likeliest
from mlxcel.engine.sampling.rowwise import at, exponential, peak, total


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Of the n rows that asked, k the most any of them asked for."""

    places: list[int]
    """Their places in the batch."""
    said: mx.array
    """float32 `[n]`: of the token drawn, or forced; meaningless where there was none. -inf for a
    token whose bias bans it."""
    ids: mx.array
    """int32 `[n, k]`: the likeliest tokens, best first."""
    values: mx.array
    """float32 `[n, k]`: theirs."""


class Scorer:
    """For a fixed list of rows; `top_logprobs` is how many of the likeliest each wants told, None:
    no scores."""

    def __init__(self, top_logprobs: Sequence[int | None], vocab: int) -> None:
        asked = {i: most for i, most in enumerate(top_logprobs) if most is not None}
        self.places = list(asked)
        self._most = min(max(asked.values(), default=0), vocab)

    def __call__(self, logits: mx.array, tokens: mx.array) -> Scores:
        """`logits` after bias, penalties and DRY, untempered; of the whole batch."""
        places = mx.array(self.places)
        logits, tokens = logits[places], mx.maximum(tokens[places], 0)
        top = peak(logits)
        mass = mx.log(total(exponential(logits - top))) + top
        ids = likeliest(logits, max(self._most, 1))[:, : self._most]
        return Scores(
            places=self.places,
            said=(at(logits, tokens[:, None]) - mass)[:, 0],
            ids=ids.astype(mx.int32),
            values=mx.take_along_axis(logits, ids, axis=-1) - mass,
        )
