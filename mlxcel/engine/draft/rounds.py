"""A verify round: what goes into its forward, and what comes of it.

Sampler match: a proposal is kept where it is what the row's own chain draws at that place. Draws
depend on (seed, position) alone, so a row says what it would have said without (speculative, 5).
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.state import RowState, initial_state
from mlxcel.engine.sequence import Sequence as Row

PADDING = 0


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
) -> mx.array:
    """What the rows say after each of their proposals, int32 `[all proposals]`, row by row.
    `logits` `[rows, span, vocab]`; `positions`: where each row stands in its answer."""
    where = [(place, n) for place, tokens in enumerate(proposed) for n in range(1, 1 + len(tokens))]
    sampling = [rows[place].sampling for place, _ in where]
    states = RowState()
    for params in sampling:
        states.join(initial_state(params))
    sampler = BatchSampler(sampling, logits.shape[-1])
    seen = logits[mx.array([place for place, _ in where]), mx.array([n for _, n in where])]
    history = mx.zeros((len(where), 0), dtype=mx.int32)
    drawn = sampler(seen, [positions[place] + n for place, n in where], history, states.values)
    return drawn.tokens


def accepted_runs(
    first: mx.array, later: mx.array, proposed: Sequence[Sequence[int]]
) -> list[list[int]]:
    """What each row says after its token in `first`: the token drawn after every proposal that
    came true, up to the first that did not. Waits for the device."""
    mx.eval(first, later)
    said = cast(list[int], first.tolist())
    drawn = iter(cast(list[int], later.tolist()))
    runs = []
    for token, tokens in zip(said, proposed, strict=True):
        after = [next(drawn) for _ in tokens]
        runs.append(run_of(token, tokens, after))
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
