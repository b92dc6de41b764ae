"""Proposals of a smaller model with the same tokens (Leviathan, Kalman, Matias 2023)."""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.draws import OwnDraws
from mlxcel.engine.kv.steady import steady
from mlxcel.weights.load import current_backend


class FullModel:
    """The drafter of one row, with KV of its own: that of the text but its last token, then of
    `_ahead`. A prompt is read in chunks, one each time it is asked; until then it proposes
    nothing."""

    is_free = False

    def __init__(
        self,
        network: nn.Module,
        sampling: SamplingParams,
        *,
        vocab: int,
        chunk: int,
        keeps_odds: bool = False,
    ) -> None:
        """`vocab`: logits of the target; those a drafter has more are left out. `chunk`: tokens
        of a forward; 0: all. `keeps_odds`: the rule is modified rejection."""
        self._network = network
        self._draw = OwnDraws(sampling, vocab, keeps_odds=keeps_odds)
        self._chunk = chunk
        self._caches = steady(make_prompt_cache(network), current_backend())
        self._said: int | None = None
        """Tokens of the answer; None before the prompt is known."""
        self._unread: list[int] = []
        self._logits: mx.array | None = None
        """After the text, while nothing of it is unread."""
        self._ahead: list[int] = []

    @property
    def odds(self) -> mx.array | None:
        return self._draw.odds

    def hear(self, tokens: Sequence[int]) -> None:
        self._said = 0 if self._said is None else self._said + len(tokens)
        if not tokens:
            return
        # The last one is read again: what follows it is drawn from that.
        kept = min(_common(self._ahead, tokens), len(tokens) - 1)
        self._forget(len(self._ahead) - kept)
        self._unread += tokens[kept:]

    def propose(self, count: int) -> list[int]:
        self._draw.begin()
        self._forget(len(self._ahead))
        if self._chunk and len(self._unread) > self._chunk:
            self._forward(self._unread[: self._chunk])
            mx.eval([cache.state for cache in self._caches])
            del self._unread[: self._chunk]
            return []
        if self._unread:
            self._logits = self._forward(self._unread)
            self._unread = []
        logits = self._logits
        assert logits is not None, "there is a text"
        drawn: list[mx.array] = []
        for n in range(count):
            if drawn:
                logits = self._after(drawn[-1])
            drawn.append(self._draw(logits, (self._said or 0) + n))
        proposed = cast(list[int], mx.concatenate(drawn).tolist())
        self._ahead = proposed[:-1]
        return proposed

    def _forward(self, tokens: Sequence[int]) -> mx.array:
        return self._after(mx.array(list(tokens), dtype=mx.int32))

    def _after(self, tokens: mx.array) -> mx.array:
        logits: mx.array = self._network(tokens[None], cache=self._caches)[:, -1]
        return logits

    def _forget(self, count: int) -> None:
        trim_prompt_cache(self._caches, count)
        self._ahead = []


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
