"""Log-probabilities of what was said and of the likeliest tokens, for the rows that ask."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxcel.engine.sampling.head import likeliest
from mlxcel.engine.sampling.rowwise import at, exponential, padded, total


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
        self._rows = None if len(asked) == len(top_logprobs) else mx.array(self.places)

    def __call__(self, logits: mx.array, tokens: mx.array) -> Scores:
        """`logits` after bias, penalties and DRY, untempered; of the whole batch."""
        if self._rows is not None:
            logits, tokens = logits[self._rows], tokens[self._rows]
        logits = padded(logits, -mx.inf).astype(mx.float32)
        ids, values = likeliest(logits, max(self._most, 1))
        top = values[:, :1]
        mass = mx.log(total(exponential(logits - top))) + top
        said = at(logits, mx.maximum(tokens, 0)[:, None])
        return Scores(
            places=self.places,
            said=(said - mass)[:, 0],
            ids=ids[:, : self._most].view(mx.int32),
            values=values[:, : self._most] - mass,
        )
