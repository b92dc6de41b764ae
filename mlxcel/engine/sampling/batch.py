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
from mlxcel.engine.sampling.draws import PROPOSAL_SALT
from mlxcel.engine.sampling.group import Group, Kind, Step, kind_of
from mlxcel.engine.sampling.mirostat import is_mirostat
from mlxcel.engine.sampling.penalties import DryPenalties, Penalties
from mlxcel.engine.sampling.rejection import Proposed
from mlxcel.engine.sampling.scores import Scorer, Scores, with_forced

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
    scores: tuple[Scores, ...]
    """Of the rows that asked for log-probabilities, each in one of them."""
    odds: mx.array | None
    """float32 `[rows, vocab]`, of a sampler that proposes: how probable each token was. None where
    no other than those drawn was possible."""


class BatchSampler:
    """For a fixed list of rows; made anew when rows join or leave. `top_logprobs` is how many of
    the likeliest tokens each row wants told, None: no scores; empty: no row has any. Rows of
    `post_sampling` want those of the distribution they are drawn from, others the model's own.

    One that `proposes` draws with numbers independent of those the rows draw with, and tells out
    of which odds; its rows must all be of one kind."""

    def __init__(
        self,
        rows: Sequence[SamplingParams],
        vocab: int,
        *,
        top_logprobs: Sequence[int | None] = (),
        post_sampling: Sequence[bool] = (),
        proposes: bool = False,
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
        own, drawn = _split(top_logprobs, post_sampling, len(rows))
        self._scorer = Scorer(own, vocab)
        kinds = [kind_of(row) for row in rows]
        places = {kind: [i for i, k in enumerate(kinds) if k is kind] for kind in Kind}
        self._salt = PROPOSAL_SALT if proposes else np.uint64(0)
        self._groups = [
            Group(kind, rows, where, vocab, drawn, keeps_odds=proposes)
            for kind, where in places.items()
            if where
        ]
        assert not proposes or len(self._groups) == 1
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
        proposed: Proposed | None = None,
    ) -> Drawn:
        """`logits` `[rows, vocab]`; the output position of each row; what was said before
        (`History.tokens`); what samplers remember (`RowState.values`); `allowed` bool
        `[rows, vocab]`: the tokens a constraint lets through; `forced` int32 `[rows]`: said
        instead of what is drawn, leaving the row's state alone, -1: none; `proposed`: in view of
        which rows draw, whose samplers remember nothing."""
        scored = self._scored(logits, history)
        masked = scored if allowed is None else mx.where(allowed, scored, -mx.inf)
        places = np.array(positions, dtype=np.uint64)
        step = Step(masked, self._seeds, places, state, self._salt, proposed)
        tokens, after, told, odds = self._drawn(step)
        if forced is not None:
            told = [with_forced(scores, forced) for scores in told]
            is_free = forced < 0
            tokens = mx.where(is_free, tokens, forced)
            if after is not state:
                after = mx.where(is_free[:, None], after, state)
        if self._scorer.places:
            told = [self._scorer(scored, tokens), *told]
        return Drawn(tokens, after, tuple(told), odds)

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

    def _drawn(self, step: Step) -> tuple[mx.array, mx.array, list[Scores], mx.array | None]:
        """Tokens and states in the order of the batch, what was asked of the draws, and the odds
        where they are kept."""
        parts = [group(step) for group in self._groups]
        told = [part.told for part in parts if part.told is not None]
        if len(parts) == 1:
            (part,) = parts
            return part.tokens, part.state, told, part.odds
        tokens = mx.concatenate([part.tokens for part in parts])[self._order]
        keeps_state = any(group.has_state for group in self._groups)
        if not keeps_state:
            return tokens, step.state, told, None
        return tokens, mx.concatenate([part.state for part in parts])[self._order], told, None


def _split(
    asked: Sequence[int | None], post_sampling: Sequence[bool], count: int
) -> tuple[list[int | None], list[int | None]]:
    """Of each row, how many tokens it wants told: of the model's own, of those it is drawn from."""
    asked = asked or [None] * count
    post_sampling = post_sampling or [False] * count
    own = [None if is_post else most for most, is_post in zip(asked, post_sampling, strict=True)]
    drawn = [most if is_post else None for most, is_post in zip(asked, post_sampling, strict=True)]
    return own, drawn
