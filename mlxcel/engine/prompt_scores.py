"""How likely the tokens of a prompt were: read off the head, a piece of the prompt at a time.

Of the model's own distribution, as it has come: nothing that is done to draw an answer (bias,
penalties, temperature) has a part in it.
"""

import math
from typing import cast

import mlx.core as mx

from mlxcel.engine.sampling.scores import scores_of
from mlxcel.link.messages import TokenScores

LOGITS_BYTES = 32 * 2**20
"""What the float32 logits of a piece may take. On a CPU seven times as much is needed at the peak:
the exponential is a polynomial there."""
PIECE = 512
"""Tokens of a piece, at most: they are told in one message."""


def piece_of(vocab: int) -> int:
    """Tokens that are scored at once."""
    return max(1, min(PIECE, LOGITS_BYTES // (4 * max(1, vocab))))


def prompt_scores(logits: mx.array, tokens: tuple[int, ...], most: int) -> list[TokenScores]:
    """`logits` `[places, vocab]`, of the place before each of `tokens`; `most` of the likeliest
    are told beside each. Raises ValueError where the model's output is not a number."""
    most = min(most, logits.shape[-1])
    places = list(range(len(tokens)))
    scores = scores_of(logits, mx.array(tokens), most=most, places=places)
    mx.eval(scores.said, scores.ids, scores.values)
    said = cast(list[float], scores.said.tolist())
    if any(map(math.isnan, said)):
        raise ValueError("no token of the prompt can be scored: the model's output is not a number")
    ids = cast(list[list[int]], scores.ids.tolist())
    values = cast(list[list[float]], scores.values.tolist())
    tops = [list(zip(*best, strict=True)) for best in zip(ids, values, strict=True)]
    return [TokenScores(*told) for told in zip(said, tops, strict=True)]
