"""Log-probabilities of a step as messages: one reading of the device for all rows that asked."""

from collections.abc import Sequence
from math import inf
from typing import cast

from mlxcel.engine.sampling.batch import Scores
from mlxcel.link.messages import Submit, TokenScores


def read_scores(told: Sequence[Scores], rows: Sequence[Submit]) -> list[TokenScores | None]:
    """One for each row of the batch; None for a row that did not ask."""
    found: list[TokenScores | None] = [None] * len(rows)
    for scores in told:
        said = cast(list[float], scores.said.tolist())
        ids = cast(list[list[int]], scores.ids.tolist())
        values = cast(list[list[float]], scores.values.tolist())
        for at, place in enumerate(scores.places):
            found[place] = _told(rows[place], said[at], ids[at], values[at])
    return found


def _told(row: Submit, said: float, ids: list[int], values: list[float]) -> TokenScores:
    asked = row.top_logprobs or 0
    best = list(zip(ids[:asked], values[:asked], strict=True))
    if row.is_post_sampling:  # what could not be drawn is no candidate
        best = [(token, value) for token, value in best if value > -inf]
    return TokenScores(said, best)
