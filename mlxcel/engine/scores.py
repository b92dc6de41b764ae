"""Log-probabilities of a step as messages: one reading of the device for all rows that asked."""

from collections.abc import Sequence
from typing import cast

from mlxcel.engine.sampling.batch import Scores
from mlxcel.link.messages import Submit, TokenScores


def read_scores(scores: Scores | None, rows: Sequence[Submit]) -> list[TokenScores | None]:
    """One for each row of the batch; None for a row that did not ask."""
    found: list[TokenScores | None] = [None] * len(rows)
    if scores is None:
        return found
    said = cast(list[float], scores.said.tolist())
    ids = cast(list[list[int]], scores.ids.tolist())
    values = cast(list[list[float]], scores.values.tolist())
    for at, place in enumerate(scores.places):
        asked = rows[place].top_logprobs or 0
        best = list(zip(ids[at][:asked], values[at][:asked], strict=True))
        found[place] = TokenScores(said[at], best)
    return found
