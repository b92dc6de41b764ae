"""Proposals of a DFlash head: all of a block at once.

A DSpark head corrects the logits of each position by what was chosen before it, so its proposals
are chosen one after the other; the forward is one all the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.dflash.context import Context
from mlxcel.engine.draft.dflash.network import Network
from mlxcel.engine.draft.draws import OwnDraws


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """A head with the embedding and the output layer it draws with.

    A block always has `size` positions, however few proposals are wanted: its masks look at each
    other, and of that many it has learnt to make sense. Only the output layer, which is what
    costs, is spared for those that nobody wants.
    """

    network: Network
    embed: Callable[[mx.array], mx.array]
    """int32 `[1, n]` -> `[1, n, hidden]`."""
    head: Callable[[mx.array], mx.array]
    """`[1, n, hidden]` -> `[1, n, vocab]`."""
    size: int

    @property
    def most(self) -> int:
        """Proposals."""
        return self.size - self.network.config.scaffold

    def logits(self, last: int, contexts: Sequence[Context], count: int) -> mx.array:
        """`[count, vocab]` of the tokens that follow `last`, the first that is not in the
        context."""
        config = self.network.config
        block = mx.array([[last] + [config.mask_token_id] * (self.size - 1)], dtype=mx.int32)
        hidden = self.network(self.embed(block), contexts)
        first = config.scaffold
        logits = self.head(hidden[:, first : first + count])[0]
        cap = config.final_logit_softcapping
        return logits if cap is None else cap * mx.tanh(logits / cap)


class DFlash:
    """The drafter of one row."""

    is_free = False

    def __init__(
        self, blocks: Blocks, sampling: SamplingParams, *, vocab: int, keeps_odds: bool = False
    ) -> None:
        """`vocab`: logits of the target. `keeps_odds`: the rule is modified rejection."""
        self._blocks = blocks
        self._draw = OwnDraws(sampling, vocab, keeps_odds=keeps_odds)
        self._contexts = blocks.network.contexts()
        self._said: int | None = None
        """Tokens of the answer; None before the prompt is known."""
        self._heard = 0
        self._seen = 0
        self._last = 0

    @property
    def odds(self) -> mx.array | None:
        return self._draw.odds

    def hear(self, tokens: Sequence[int]) -> None:
        self._said = 0 if self._said is None else self._said + len(tokens)
        self._heard += len(tokens)
        if tokens:
            self._last = tokens[-1]

    def look(self, rows: mx.array) -> None:
        """Read as they come, and evaluated: they are slices of the row's KV, which is written on
        in place only while nobody holds on to it."""
        self._blocks.network.read(rows[None], self._contexts)
        self._seen += rows.shape[0]
        mx.async_eval([context.arrays for context in self._contexts])

    def propose(self, count: int) -> list[int]:
        assert self._seen == self._heard - 1, "a row of every position but the last"
        self._draw.begin()
        count = min(count, self._blocks.most)
        logits = self._blocks.logits(self._last, self._contexts, count)
        is_dspark = self._blocks.network.config.is_dspark
        drawn = self._one_by_one(logits) if is_dspark else self._draw(logits, self._said or 0)
        return cast(list[int], drawn.tolist())

    def _one_by_one(self, logits: mx.array) -> mx.array:
        """int32 `[n]`; nothing is waited for in between."""
        correction, said = self._blocks.network.markov_head, self._said or 0
        before, drawn = mx.array([self._last], dtype=mx.int32), []
        for n in range(logits.shape[0]):
            before = self._draw(logits[n : n + 1] + correction(before), said + n)
            drawn.append(before)
        return mx.concatenate(drawn)


class Silent:
    """The drafter of a row for which a head is not made: a DSpark head is one for greedy rows."""

    is_free = True
    odds = None

    def hear(self, tokens: Sequence[int]) -> None: ...

    def look(self, rows: mx.array) -> None: ...

    def propose(self, count: int) -> list[int]:
        return []
