"""One token for each row, vectorised over rows with per-row parameters.

The chain is the engine contract's (generation 2): bias, penalties and DRY on the logits, then
truncation on the untempered distribution, temperature, draw. A draw inverts the cumulative
distribution at one number that depends on (seed, position) alone (ADR 3).
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxcel.core.request import Dry, SamplingParams
from mlxcel.engine.sampling.group import Group, Kind, kind_of
from mlxcel.engine.sampling.penalties import DryPenalties, Penalties

NO_DRY = Dry(multiplier=0.0, base=1.0, allowed_length=1, window=0)


class BatchSampler:
    """For a fixed list of rows; made anew when rows join or leave."""

    def __init__(self, rows: Sequence[SamplingParams], vocab: int) -> None:
        self._seeds = np.array([row.seed for row in rows], dtype=np.uint64)
        self._bias = _bias(rows, vocab)
        self._penalties = Penalties(rows) if any(row.has_penalties for row in rows) else None
        has_dry = any(row.dry is not None for row in rows)
        self._dry = DryPenalties([row.dry or NO_DRY for row in rows], vocab) if has_dry else None
        kinds = [kind_of(row) for row in rows]
        places = {kind: [i for i, k in enumerate(kinds) if k is kind] for kind in Kind}
        self._groups = [Group(kind, rows, where) for kind, where in places.items() if where]
        order = [i for where in places.values() for i in where]
        self._order = [order.index(i) for i in range(len(rows))]

    def __call__(self, logits: mx.array, positions: Sequence[int], history: mx.array) -> mx.array:
        """`logits` `[rows, vocab]`, the output position of each row, what was said before
        (`History.tokens`) -> tokens `[rows]`."""
        scored = self._scored(logits, history)
        places = np.array(positions, dtype=np.uint64)
        parts = [group(scored, self._seeds, places) for group in self._groups]
        if len(parts) == 1:
            return parts[0].astype(mx.int32)
        return mx.concatenate(parts)[mx.array(self._order)].astype(mx.int32)

    def _scored(self, logits: mx.array, history: mx.array) -> mx.array:
        logits = logits.astype(mx.float32)
        if self._bias is not None:
            logits = logits + self._bias
        if self._penalties is not None:
            logits = self._penalties(logits, history)
        if self._dry is not None:
            logits = self._dry(logits, history)
        return logits


def _bias(rows: Sequence[SamplingParams], vocab: int) -> mx.array | None:
    """Step 1 as an array to add; None when no row has a bias."""
    if not any(row.bias for row in rows):
        return None
    dense = np.zeros((len(rows), vocab), dtype=np.float32)
    for place, row in enumerate(rows):
        for token, value in row.bias:
            dense[place, token] += value
    return mx.array(dense)
