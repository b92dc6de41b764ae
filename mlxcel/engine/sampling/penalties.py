"""Steps 2 to 4 of the chain: penalties on what was said before, for all rows at once.

`history` is int32 `[rows, width]`: the last tokens of prompt and answer, newest last, -1 where
there are none. Windows are counts from the newest; a window of 0 switches a row off. Only the
logits of tokens in the history are touched.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxcel.core.sampling import Dry, SamplingParams
from mlxcel.engine.sampling.rowwise import at, column, fused

PAIRED = 256
"""Histories up to this width are counted by comparing all pairs, without touching a vocabulary."""
LONGEST_MATCH = 48
"""DRY looks no further back for a repeated suffix; its penalty is astronomical long before."""


class Penalties:
    """Repetition, frequency and presence penalties of a list of rows."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        self._windows = mx.array([[row.penalty_window] for row in rows])
        self._least_window = min(row.penalty_window for row in rows)
        self._repetition = column([row.repetition_penalty for row in rows])
        self._frequency = column([row.frequency_penalty for row in rows])
        self._presence = column([row.presence_penalty for row in rows])

    def __call__(self, logits: mx.array, history: mx.array) -> mx.array:
        # Where there is no token it is 0: whatever stands for a token more than once in a row is
        # given the same value each time.
        said = mx.maximum(history, 0)
        before = at(logits, said)
        counts = self._counts(logits, history, said)
        after = _penalised(before, counts, self._repetition, self._frequency, self._presence)
        return mx.put_along_axis(logits, said, after, axis=-1)

    def _counts(self, logits: mx.array, history: mx.array, said: mx.array) -> mx.array:
        """How often each token said stands in its row's window: `[rows, width]`."""
        rows, width = history.shape
        is_in = history >= 0
        if self._least_window < width:
            is_in = is_in & (mx.arange(width)[None] >= width - self._windows)
        if width <= PAIRED:
            return mx.sum(_same(said[:, :, None], said[:, None], is_in[:, None]), axis=-1)
        nothing = mx.zeros(logits.shape)
        places = mx.arange(rows)[:, None]
        return at(nothing.at[places, said].add(is_in.astype(mx.float32)), said)


@fused
def _same(one: mx.array, other: mx.array, is_in: mx.array) -> mx.array:
    return (one == other) & is_in


@fused
def _penalised(
    before: mx.array,
    counts: mx.array,
    repetition: mx.array,
    frequency: mx.array,
    presence: mx.array,
) -> mx.array:
    weighed = mx.where(before > 0, before / repetition, before * repetition)
    after = weighed - frequency * counts - presence
    return mx.where(counts > 0, after, before)


class DryPenalties:
    """The token that would lengthen a repetition of the last tokens is made less likely."""

    def __init__(self, rows: Sequence[Dry], vocab: int) -> None:
        self._windows = mx.array([[row.window] for row in rows])
        self._multiplier = column([row.multiplier for row in rows])
        self._base = column([row.base for row in rows])
        self._allowed = mx.array([[row.allowed_length] for row in rows])
        self._breaks = mx.zeros((len(rows), vocab), dtype=mx.bool_)
        for place, row in enumerate(rows):
            if row.breakers:
                self._breaks[place, mx.array(row.breakers)] = True

    def __call__(self, logits: mx.array, history: mx.array) -> mx.array:
        if history.shape[-1] < 2:
            return logits
        lengths = self._matches(history)
        excess = (lengths - self._allowed).astype(mx.float32)
        weighed = self._multiplier * mx.power(self._base, excess)
        penalty = mx.where((excess >= 0) & (lengths > 0), weighed, 0.0)
        following = mx.maximum(history[:, 1:], 0)
        rows = mx.arange(logits.shape[0])[:, None]
        worst = mx.zeros_like(logits).at[rows, following].maximum(penalty)
        return logits - worst

    def _matches(self, history: mx.array) -> mx.array:
        """`[rows, width - 1]`: how many tokens up to each position repeat the end of history."""
        width = history.shape[1]
        reach = min(LONGEST_MATCH, width - 1)
        ends, back = mx.arange(width - 1)[:, None], mx.arange(reach)[None]
        sources = ends - back
        suffix = history[:, ::-1][:, :reach]
        inside = (sources >= 0) & (sources[None] >= width - self._windows[:, :, None])
        same = history[:, mx.maximum(sources, 0)] == suffix[:, None, :]
        breaks = mx.take_along_axis(self._breaks, mx.maximum(suffix, 0), axis=-1)
        usable = inside & same & ~breaks[:, None, :] & (suffix >= 0)[:, None, :]
        return mx.sum(mx.cumprod(usable.astype(mx.int32), axis=-1), axis=-1)
