"""Steps 2 to 4 of the chain: penalties on what was said before, for all rows at once.

`history` is int32 `[rows, width]`: the last tokens of prompt and answer, newest last, -1 where
there are none. Windows are counts from the newest; a window of 0 switches a row off.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxcel.core.request import Dry, SamplingParams

LONGEST_MATCH = 48
"""DRY looks no further back for a repeated suffix; its penalty is astronomical long before."""


class Penalties:
    """Repetition, frequency and presence penalties of a list of rows."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        self.window = max((row.penalty_window for row in rows), default=0)
        self._windows = mx.array([[row.penalty_window] for row in rows])
        self._repetition = _column([row.repetition_penalty for row in rows])
        self._frequency = _column([row.frequency_penalty for row in rows])
        self._presence = _column([row.presence_penalty for row in rows])

    def __call__(self, logits: mx.array, history: mx.array) -> mx.array:
        counts = _counts(history, self._windows, logits.shape[-1])
        seen = counts > 0
        weighed = mx.where(logits > 0, logits / self._repetition, logits * self._repetition)
        changed = mx.where(seen, weighed, logits)
        return changed - self._frequency * counts - self._presence * seen


class DryPenalties:
    """The token that would lengthen a repetition of the last tokens is made less likely."""

    def __init__(self, rows: Sequence[Dry], vocab: int) -> None:
        self.window = max((row.window for row in rows), default=0)
        self._windows = mx.array([[row.window] for row in rows])
        self._multiplier = _column([row.multiplier for row in rows])
        self._base = _column([row.base for row in rows])
        self._allowed = mx.array([[row.allowed_length] for row in rows])
        self._breaks = mx.zeros((len(rows), vocab), dtype=mx.bool_)
        for place, row in enumerate(rows):
            if row.breakers:
                self._breaks[place, mx.array(row.breakers)] = True

    def __call__(self, logits: mx.array, history: mx.array) -> mx.array:
        lengths = self._matches(history)
        excess = (lengths - self._allowed).astype(mx.float32)
        penalty = mx.where(excess >= 0, self._multiplier * mx.power(self._base, excess), 0.0)
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


def _counts(history: mx.array, windows: mx.array, vocab: int) -> mx.array:
    """How often each token stands in each row's window: float32 `[rows, vocab]`."""
    rows, width = history.shape
    is_in = (mx.arange(width)[None] >= width - windows) & (history >= 0)
    counts = mx.zeros((rows, vocab), dtype=mx.float32)
    return counts.at[mx.arange(rows)[:, None], mx.maximum(history, 0)].add(is_in.astype(mx.float32))


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None]
