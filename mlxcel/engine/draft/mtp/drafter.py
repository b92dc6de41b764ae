"""Proposals of a next-token head, one after the other (contract: speculative 11).

It reads pairs: the hidden state of a position and the token that came after it. Knows nothing of
how the head is built.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx
from mlx_lm.models.cache import trim_prompt_cache

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.draws import OwnDraws
from mlxcel.engine.draft.mtp.head import Head
from mlxcel.engine.draft.target import Target
from mlxcel.engine.kv.steady import steady
from mlxcel.weights.load import current_backend


class NextTokens:
    """The drafter of one row. Its KV is that of the pairs it was told of: what it makes while it
    proposes is dropped."""

    is_free = False

    def __init__(
        self,
        head: Head,
        target: Target,
        sampling: SamplingParams,
        *,
        vocab: int,
        keeps_odds: bool = False,
    ) -> None:
        """`vocab`: logits of the target. `keeps_odds`: the rule is modified rejection."""
        self._head = head
        self._target = target
        self._draw = OwnDraws(sampling, vocab, keeps_odds=keeps_odds)
        self._caches = steady(head.make_cache(), current_backend())
        self._said: int | None = None
        """Tokens of the answer; None before the prompt is known."""
        self._tokens: list[int] = []
        """Unread; the first of a text is left out, as no state comes before it."""
        self._rows: list[mx.array] = []
        """Unread: hidden states `[n, hidden]`, the first of them before the first of `_tokens`."""
        self._last: mx.array | None = None
        """`[1, 1, hidden]`: what the head made of the last pair."""

    @property
    def odds(self) -> mx.array | None:
        return self._draw.odds

    def hear(self, tokens: Sequence[int]) -> None:
        is_prompt = self._said is None
        self._said = 0 if self._said is None else self._said + len(tokens)
        self._tokens += tokens[1:] if is_prompt else tokens

    def look(self, rows: mx.array) -> None:
        self._rows.append(rows)
        self._read()

    def propose(self, count: int) -> list[int]:
        self._draw.begin()
        self._read()
        hidden = self._last
        if hidden is None:
            return []  # of a prompt of one token no hidden state is known before the next
        drawn: list[mx.array] = []
        for n in range(count):
            if drawn:
                hidden = self._after(drawn[-1], hidden)
            logits = self._target.head(self._head.spoken(hidden))[:, -1]
            drawn.append(self._draw(logits, (self._said or 0) + n))
        trim_prompt_cache(self._caches, count - 1)
        return cast(list[int], mx.concatenate(drawn).tolist())

    def _read(self) -> None:
        """Whatever pairs are complete. Evaluated as they come: else the graph of a long prompt
        would grow from ask to ask."""
        known = sum(len(rows) for rows in self._rows)
        count = min(known, len(self._tokens))
        if not count:
            return
        rows = mx.concatenate(self._rows)
        tokens = mx.array(self._tokens[:count], dtype=mx.int32)
        self._last = self._after(tokens, rows[None, :count])[:, -1:]
        self._rows = [rows[count:]] if known > count else []
        del self._tokens[:count]
        mx.async_eval(self._last)  # and with it the KV that it was made from

    def _after(self, tokens: mx.array, hidden: mx.array) -> mx.array:
        return self._head(self._target.embed(tokens[None]), hidden, self._caches)
