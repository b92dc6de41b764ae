"""How a drafter that has logits draws: as its row does, with the same seed and position.

A draw inverts the cumulative distribution at one number, so where drafter and target agree they
draw the same token, and nearly as many tokens come true as can.

Where its row draws in view of its proposals (modified rejection), it must do so with numbers of
its own, and tell out of which odds.
"""

from functools import cache

import mlx.core as mx

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.state import RowState, initial_state, remembers


class OwnDraws:
    """For one row. `vocab`: of the target; logits beyond it are left out. `keeps_odds`: the rule is
    modified rejection, for rows that it can be used for."""

    def __init__(self, sampling: SamplingParams, vocab: int, *, keeps_odds: bool = False) -> None:
        self._sampling = sampling
        self._vocab = vocab
        self._keeps_odds = keeps_odds and can_reject(sampling)
        self._made = cache(self._make)
        self._odds: list[mx.array] = []

    def begin(self) -> None:
        """A proposal: what was drawn before is no part of it."""
        self._odds = []

    @property
    def odds(self) -> mx.array | None:
        """Of all draws since it began: float32 `[n, vocab]`, how probable each token was. None:
        the row keeps what it would have drawn by itself."""
        return mx.concatenate(self._odds) if self._odds else None

    def __call__(self, logits: mx.array, position: int) -> mx.array:
        """`logits` `[n, vocab]`, of the row's output positions `position`.. -> int32 `[n]`."""
        count = logits.shape[0]
        sampler, state = self._made(count)
        history = mx.zeros((count, 0), dtype=mx.int32)
        positions = range(position, position + count)
        drawn = sampler(logits[:, : self._vocab], positions, history, state)
        if drawn.odds is not None:
            self._odds.append(drawn.odds)
        return drawn.tokens

    def _make(self, count: int) -> tuple[BatchSampler, mx.array]:
        state = RowState()
        for _ in range(count):
            state.join(initial_state(self._sampling))
        sampling = [self._sampling] * count
        return BatchSampler(sampling, self._vocab, proposes=self._keeps_odds), state.values


def can_reject(sampling: SamplingParams) -> bool:
    """Whether there is something to draw, and no sampler that learns from what it has drawn."""
    return not (sampling.is_greedy or remembers(sampling))
