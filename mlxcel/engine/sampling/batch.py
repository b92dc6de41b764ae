"""One token for each row, vectorised over rows with per-row parameters.

The chain is the engine contract's (generation 2): bias, penalties and DRY on the logits, the mask
of a constraint, then truncation on the untempered distribution, temperature, draw. A draw inverts
the cumulative distribution at one number that depends on (seed, position) alone (ADR 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxcel.core.sampling import Dry, SamplingParams
from mlxcel.engine.sampling.bias import dense_bias
from mlxcel.engine.sampling.group import Group, Kind, Step, kind_of
from mlxcel.engine.sampling.mirostat import is_mirostat
from mlxcel.engine.sampling.penalties import DryPenalties, Penalties
from mlxcel.engine.sampling.scores import Scorer, Scores

NO_DRY = Dry(multiplier=0.0, base=1.0, allowed_length=1, window=0)
UNPENALISED = SamplingParams()


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What a step has chosen, on the device."""

    tokens: mx.array
    """int32 `[rows]`; -1 where nothing could be drawn: all logits -inf or NaN, or the largest
    infinite. (One NaN is enough on a CPU; on a GPU it may be a token that is never drawn.)"""
    state: mx.array
    """float32 `[rows, 2]`: what the next step begins with."""
    scores: Scores | None
    """Where a row asked for log-probabilities."""


class BatchSampler:
    """For a fixed list of rows; made anew when rows join or leave. `top_logprobs` is how many of
    the likeliest tokens each row wants told, None: no scores; empty: no row has any."""

    def __init__(
        self,
        rows: Sequence[SamplingParams],
        vocab: int,
        *,
        top_logprobs: Sequence[int | None] = (),
    ) -> None:
        self._seeds = np.array([row.seed for row in rows], dtype=np.uint64)
        self._bias = dense_bias(rows, vocab)
        # Mirostat takes the place of penalties and DRY.
        penalised = [UNPENALISED if is_mirostat(row) else row for row in rows]
        has_penalties = any(row.has_penalties for row in penalised)
        self._penalties = Penalties(penalised) if has_penalties else None
        has_dry = any(row.dry is not None for row in penalised)
        rules = [row.dry or NO_DRY for row in penalised]
        self._dry = DryPenalties(rules, vocab) if has_dry else None
        self._scorer = Scorer(top_logprobs, vocab)
        kinds = [kind_of(row) for row in rows]
        places = {kind: [i for i, k in enumerate(kinds) if k is kind] for kind in Kind}
        self._groups = [Group(kind, rows, where, vocab) for kind, where in places.items() if where]
        order = [i for where in places.values() for i in where]
        self._order = mx.array([order.index(i) for i in range(len(rows))])

    def __call__(
        self,
        logits: mx.array,
        positions: Sequence[int],
        history: mx.array,
        state: mx.array,
        allowed: mx.array | None = None,
        forced: mx.array | None = None,
    ) -> Drawn:
        """`logits` `[rows, vocab]`; the output position of each row; what was said before
        (`History.tokens`); what samplers remember (`RowState.values`); `allowed` bool
        `[rows, vocab]`: the tokens a constraint lets through; `forced` int32 `[rows]`: said
        instead of what is drawn, leaving the row's state alone, -1: none."""
        scored = self._scored(logits, history)
        masked = scored if allowed is None else mx.where(allowed, scored, -mx.inf)
        places = np.array(positions, dtype=np.uint64)
        tokens, after = self._drawn(Step(masked, self._seeds, places, state))
        if forced is not None:
            is_free = forced < 0
            tokens = mx.where(is_free, tokens, forced)
            if after is not state:
                after = mx.where(is_free[:, None], after, state)
        return Drawn(tokens, after, self._scorer(scored, tokens) if self._scorer.places else None)

    def _scored(self, logits: mx.array, history: mx.array) -> mx.array:
        """As they have come where nothing is done to them, else float32."""
        is_touched = self._bias is not None or self._penalties is not None or self._dry is not None
        if is_touched:
            logits = logits.astype(mx.float32)
        if self._bias is not None:
            logits = logits + self._bias
        if self._penalties is not None:
            logits = self._penalties(logits, history)
        if self._dry is not None:
            logits = self._dry(logits, history)
        return logits

    def _drawn(self, step: Step) -> tuple[mx.array, mx.array]:
        """Tokens and states in the order of the batch."""
        parts = [group(step) for group in self._groups]
        if len(parts) == 1:
            return parts[0]
        tokens = mx.concatenate([part for part, _ in parts])[self._order]
        keeps_state = any(group.has_state for group in self._groups)
        if not keeps_state:
            return tokens, step.state
        return tokens, mx.concatenate([after for _, after in parts])[self._order]
