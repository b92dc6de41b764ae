"""Log-probabilities of what was said and of the likeliest tokens, for the rows that ask.

Either the model's own (`Scorer`) or those a token was really drawn with (`DrawnScorer`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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
    """float32 `[n, k]`: theirs; -inf for tokens that are gone."""


class Odds(Protocol):
    """What n rows have drawn, and out of what (`group.Choice`)."""

    @property
    def tokens(self) -> mx.array: ...

    @property
    def odds(self) -> mx.array | None: ...

    @property
    def places(self) -> mx.array: ...

    @property
    def ids(self) -> mx.array | None: ...


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
        return scores_of(logits, tokens, most=self._most, places=self.places)


def scores_of(logits: mx.array, tokens: mx.array, *, most: int, places: list[int]) -> Scores:
    """Of every row of `logits`; `most` is k, at most the vocabulary."""
    logits = padded(logits, -mx.inf).astype(mx.float32)
    ids, values = likeliest(logits, max(most, 1))
    top = values[:, :1]
    mass = mx.log(total(exponential(logits - top))) + top
    said = at(logits, mx.maximum(tokens, 0)[:, None])
    return Scores(
        places=places,
        said=(said - mass)[:, 0],
        ids=ids[:, :most].view(mx.int32),
        values=values[:, :most] - mass,
    )


class DrawnScorer:
    """For a fixed group of rows, some of which ask: `asked` is how many of the likeliest each of
    these wants told, by its place in the batch, `rows` their places in the group."""

    def __init__(self, asked: Mapping[int, int], rows: list[int], vocab: int) -> None:
        self._places = list(asked)
        self._most = min(max(asked.values()), vocab)
        self._rows = mx.array(rows)

    def __call__(self, choice: Odds) -> Scores:
        tokens = choice.tokens[self._rows]
        if choice.odds is None:
            return _certain(self._places, tokens, self._most)
        odds = choice.odds[self._rows]
        best, values = likeliest(odds, max(self._most, 1))
        whole = total(odds)
        ids = best if choice.ids is None else at(choice.ids[self._rows], best)
        said = at(odds, choice.places[self._rows])
        return Scores(
            places=self._places,
            said=mx.log(said / whole)[:, 0],
            ids=ids[:, : self._most].astype(mx.int32),
            values=mx.log(values[:, : self._most] / whole),
        )


def with_forced(scores: Scores, forced: mx.array) -> Scores:
    """Nothing was drawn for a row whose token was fixed (`forced`, of the whole batch, -1: it was
    not): no other could come."""
    fixed = forced[mx.array(scores.places)][:, None]
    is_fixed = fixed >= 0
    sure = _certain(scores.places, fixed, scores.ids.shape[1])
    return Scores(
        places=scores.places,
        said=mx.where(is_fixed[:, 0], sure.said, scores.said),
        ids=mx.where(is_fixed, sure.ids, scores.ids),
        values=mx.where(is_fixed, sure.values, scores.values),
    )


def _certain(places: list[int], tokens: mx.array, most: int) -> Scores:
    """`tokens` `[n, 1]` have probability 1."""
    shape = (len(places), most)
    is_first = mx.broadcast_to(mx.arange(most)[None] == 0, shape)
    return Scores(
        places=places,
        said=mx.zeros(len(places)),
        ids=mx.broadcast_to(tokens.astype(mx.int32), shape),
        values=mx.where(is_first, 0.0, -mx.inf),
    )
