"""Modified rejection: which rows draw in view of their proposals, and of what.

A row whose drafter tells its odds says at each place what its sampler draws in view of the
proposal there (`sampling.rejection`): that proposal, or something else. So proposals are kept
where they are what is said, in these rows as in all others.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxcel.engine.sampling.rejection import NOTHING, Proposed
from mlxcel.engine.sequence import Sequence as Row

Place = tuple[int, mx.array | None]
"""What is proposed there, and its odds `[n]`; None: the row does not look at it."""


def in_view_first(rows: Sequence[Row], proposed: Sequence[Sequence[int]]) -> Proposed | None:
    """Of what the first token of each row is drawn. None: nobody looks."""
    return _together([_places(*each)[0] for each in zip(rows, proposed, strict=True)])


def in_view_later(rows: Sequence[Row], proposed: Sequence[Sequence[int]]) -> Proposed | None:
    """Of what the tokens behind all proposals are drawn, row by row."""
    pairs = zip(rows, proposed, strict=True)
    return _together([place for row, tokens in pairs for place in _places(row, tokens)[1:]])


def _places(row: Row, proposed: Sequence[int]) -> list[Place]:
    """Behind the last proposal there is nothing to look at."""
    odds = row.draft.odds if row.draft is not None and proposed else None
    looks = [None] * len(proposed) if odds is None else list(odds[: len(proposed)])
    return [*zip(proposed, looks, strict=True), (NOTHING, None)]


def _together(places: Sequence[Place]) -> Proposed | None:
    known = [odds for _, odds in places if odds is not None]
    if not known:
        return None
    none = mx.zeros_like(known[0])
    tokens = [NOTHING if odds is None else token for token, odds in places]
    odds = mx.stack([none if odds is None else odds for _, odds in places])
    return Proposed(mx.array(tokens, dtype=mx.int32)[:, None], odds)
