"""A verify round: what goes into its forward, and what comes of it.

Sampler match: a proposal is kept where it is what the row's own chain draws at that place. Draws
depend on (seed, position) alone, so a row says what it would have said without (speculative, 5).
By the other rule rows draw in view of what is proposed (`rejection`), and all else is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import mlx.core as mx

from mlxcel.engine.draft.rejection import in_view_later
from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.history import History
from mlxcel.engine.sampling.scores import Scores
from mlxcel.engine.sampling.state import RowState, initial_state, remembers
from mlxcel.engine.scores import read_scores
from mlxcel.engine.sequence import Sequence as Row
from mlxcel.link.messages import TokenScores

PADDING = 0


@dataclass(frozen=True, slots=True, eq=False)
class Later:
    """What rows draw behind each of their proposals, provided that all up to it come true: n
    draws, row by row."""

    places: list[int]
    """Of the rows, one a draw."""
    tokens: mx.array
    """int32 `[n]`."""
    states: mx.array | None
    """float32 `[n, 2]`: what samplers remember after each; None: nothing."""
    scores: tuple[Scores, ...]
    """Of the draws, where they were asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a row says after the first token of a round."""

    tokens: list[int]
    scores: list[TokenScores | None]
    state: mx.array | None
    """`[1, 2]`, after the last token; None: as it was."""


def as_inputs(rows: Sequence[Row], proposed: Sequence[Sequence[int]]) -> mx.array:
    """Each row's last token and its proposals, int32 `[rows, 1 + most proposed]`."""
    width = max(map(len, proposed))
    padded = [
        [row.last_token, *tokens, *[PADDING] * (width - len(tokens))]
        for row, tokens in zip(rows, proposed, strict=True)
    ]
    return mx.array(padded, dtype=mx.int32)


def draw_later(
    logits: mx.array,
    rows: Sequence[Row],
    positions: Sequence[int],
    proposed: Sequence[Sequence[int]],
    *,
    history: History,
    state: RowState,
) -> list[Later]:
    """`logits` `[rows, span, vocab]`; `positions`: where each row stands in its answer. `history`
    and `state` know the first token of the round, which is the first proposal or ends it. Nothing
    is waited for."""
    places = [place for place, tokens in enumerate(proposed) if tokens]
    learning = [place for place in places if remembers(rows[place].sampling)]
    ahead = _Ahead(logits, rows, positions, proposed, history)
    found = [_one_by_one(ahead, place, state.values[place : place + 1]) for place in learning]
    others = [place for place in places if place not in learning]
    return [*found, *([_at_once(ahead, others)] if others else [])]


def runs_of(
    first: mx.array, later: Sequence[Later], proposed: Sequence[Sequence[int]], rows: Sequence[Row]
) -> list[Run]:
    """What each row says after its token in `first`: the token drawn after every proposal that
    came true, up to the first that did not. Waits for the device."""
    mx.eval(first, [one.tokens for one in later])
    said = cast(list[int], first.tolist())
    runs = [NO_RUN] * len(rows)
    for one in later:
        drawn = cast(list[int], one.tokens.tolist())
        scores = read_scores(one.scores, [rows[place].request.submit for place in one.places])
        for place in dict.fromkeys(one.places):
            begin = one.places.index(place)
            end = begin + len(proposed[place])
            tokens = run_of(said[place], proposed[place], drawn[begin:end])
            last = begin + len(tokens)
            state = None if one.states is None or not tokens else one.states[last - 1 : last]
            runs[place] = Run(tokens, scores[begin:last], state)
    return runs


def run_of(first: int, proposed: Sequence[int], after: Sequence[int]) -> list[int]:
    """`after[i]` was drawn behind `proposed[i]`: it counts where all of them so far came true."""
    run: list[int] = []
    said = first
    for guess, token in zip(proposed, after, strict=True):
        if said != guess:
            break
        run.append(token)
        said = token
    return run


NO_RUN = Run([], [], None)


@dataclass(frozen=True, slots=True, eq=False)
class _Ahead:
    """The places behind proposals."""

    logits: mx.array
    rows: Sequence[Row]
    positions: Sequence[int]
    proposed: Sequence[Sequence[int]]
    history: History

    def seen(self, place: int) -> mx.array:
        """`[n, vocab]`."""
        return self.logits[place, 1 : 1 + len(self.proposed[place])]

    def where(self, place: int) -> list[int]:
        first = self.positions[place] + 1
        return list(range(first, first + len(self.proposed[place])))

    def past(self, place: int) -> list[mx.array]:
        """What was said before each, `[1, width]`."""
        tokens = self.proposed[place]
        return [self.history.after(place, tokens[1:n]) for n in range(1, len(tokens) + 1)]

    def sampler(self, places: Sequence[int]) -> BatchSampler:
        submits = [self.rows[place].request.submit for place in places]
        return BatchSampler(
            [self.rows[place].sampling for place in places],
            self.logits.shape[-1],
            top_logprobs=[submit.top_logprobs for submit in submits],
            post_sampling=[submit.is_post_sampling for submit in submits],
        )


def _at_once(ahead: _Ahead, places: Sequence[int]) -> Later:
    """Draws that depend on what was said before, at most: that is what was proposed."""
    draws = [place for place in places for _ in ahead.proposed[place]]
    states = RowState()
    for place in draws:
        states.join(initial_state(ahead.rows[place].sampling))
    if ahead.history.width:
        past = mx.concatenate([one for place in places for one in ahead.past(place)])
    else:
        past = mx.zeros((len(draws), 0), dtype=mx.int32)
    logits = mx.concatenate([ahead.seen(place) for place in places])
    where = [position for place in places for position in ahead.where(place)]
    looks = in_view_later(
        [ahead.rows[place] for place in places], [ahead.proposed[place] for place in places]
    )
    drawn = ahead.sampler(draws)(logits, where, past, states.values, proposed=looks)
    return Later(draws, drawn.tokens, None, drawn.scores)


def _one_by_one(ahead: _Ahead, place: int, state: mx.array) -> Later:
    """Draws of a sampler that learns from each. `state` `[1, 2]`."""
    logits, past, sampler = ahead.seen(place), ahead.past(place), ahead.sampler([place])
    tokens, states, scores = [], [], []
    for n, position in enumerate(ahead.where(place)):
        drawn = sampler(logits[n : n + 1], [position], past[n], state)
        state = drawn.state
        tokens.append(drawn.tokens)
        states.append(state)
        scores += [replace(one, places=[n]) for one in drawn.scores]
    draws = [place] * len(tokens)
    return Later(draws, mx.concatenate(tokens), mx.concatenate(states), tuple(scores))
