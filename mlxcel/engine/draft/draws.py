"""How a drafter that has logits draws: as its row does, with the same seed and position.

A draw inverts the cumulative distribution at one number, so where drafter and target agree they
draw the same token, and nearly as many tokens come true as can.
"""

from functools import cache

import mlx.core as mx

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.state import RowState, initial_state


class OwnDraws:
    """For a row whose draws do not feed back (`is_eligible`). `vocab`: of the target; logits
    beyond it are left out."""

    def __init__(self, sampling: SamplingParams, vocab: int) -> None:
        self._sampling = sampling
        self._vocab = vocab
        self._made = cache(self._make)

    def __call__(self, logits: mx.array, position: int) -> mx.array:
        """`logits` `[n, vocab]`, of the row's output positions `position`.. -> int32 `[n]`."""
        count = logits.shape[0]
        sampler, state = self._made(count)
        history = mx.zeros((count, 0), dtype=mx.int32)
        positions = range(position, position + count)
        return sampler(logits[:, : self._vocab], positions, history, state).tokens

    def _make(self, count: int) -> tuple[BatchSampler, mx.array]:
        state = RowState()
        for _ in range(count):
            state.join(initial_state(self._sampling))
        return BatchSampler([self._sampling] * count, self._vocab), state.values
