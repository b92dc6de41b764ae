"""A model that says what a script says, and drafters that know it, for benchmarks of speculation.

The forward does all its work; only then the logits of the wanted tokens are raised. So how many
proposals come true is set and not hoped for, whatever the weights are, and a step of random weights
in 16 bits, where two widths may round differently, cannot leave the text.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxcel.core.status import DraftInfo
from mlxcel.engine import chat
from mlxcel.engine.chat import ChatWorker
from mlxcel.engine.draft.base import RowDraft
from mlxcel.engine.draft.governor import Gated, Governor, Graded
from mlxcel.engine.draft.prices import Prices
from mlxcel.engine.draft.speculation import Speculation
from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.report import Report
from mlxcel.engine.sequence import Sequence as Row

FORCED = 1e4

Texts = Sequence[Sequence[int]]
"""Prompt and answer of each row."""


class Script:
    """What the rows of a worker say. Requests are called by the index of their text."""

    def __init__(self, network: nn.Module) -> None:
        """The network says what it would say, until it is told."""
        self._tokens: mx.array | None = None
        self._rows: Callable[[], Sequence[Row]] = list
        plain = type(network)

        def call(module: Any, inputs: mx.array, cache: Any = None, **others: Any) -> mx.array:
            # Before the layers move on.
            offset = None if cache is None else mx.array(cache[0].offset).reshape(-1, 1)
            logits: mx.array = plain.__call__(module, inputs, cache=cache, **others)
            return logits if offset is None else self._raised(logits, offset)

        network.__class__ = type(plain.__name__, (plain,), {"__call__": call})

    def tell(self, worker: ChatWorker, texts: Texts) -> None:
        longest = max(map(len, texts))
        self._tokens = mx.array([[*text, *[0] * (longest - len(text))] for text in texts])
        self._rows = lambda: worker._scheduler._decoder.rows

    def forget(self) -> None:
        self._tokens = None

    def _raised(self, logits: mx.array, offset: mx.array) -> mx.array:
        """Prefill throws its logits away, so it may be raised or not."""
        places = [int(row.request.id) for row in self._rows()]
        rows, span, _ = logits.shape
        if self._tokens is None or len(places) != rows:
            return logits
        at = mx.minimum(offset + mx.arange(1, span + 1), self._tokens.shape[1] - 1)
        wanted = self._tokens[mx.array(places)[:, None], mx.broadcast_to(at, (rows, span))]
        raised = mx.array(FORCED, dtype=logits.dtype)
        return mx.put_along_axis(logits, wanted[..., None], raised, axis=-1)


class Foresight:
    """Proposes what the script says; each token is wrong with probability 1 - `rate`."""

    is_free = True
    odds = None

    def __init__(self, text: Sequence[int], rate: float, seed: int) -> None:
        self._text = text
        self._rate = rate
        self._dice = random.Random(seed)
        self._heard = 0

    def hear(self, tokens: Sequence[int]) -> None:
        self._heard += len(tokens)

    def propose(self, count: int) -> list[int]:
        coming = self._text[self._heard : self._heard + count]
        # Token ids stay in the vocabulary: 0 and 1 are in every one.
        return [t if self._dice.random() < self._rate else int(t == 0) for t in coming]


class Steady:
    """So many tokens, whatever became of the last ones."""

    watches = False

    def __init__(self, most: int) -> None:
        self.budget = most

    def passed(self) -> None: ...

    def took(self, accepted: int) -> None: ...

    def came_true(self, is_right: bool) -> None: ...


class Climbing(Steady):
    """One token more each round: every width is compiled once."""

    def __init__(self, most: int) -> None:
        super().__init__(1)
        self._most = most

    def took(self, accepted: int) -> None:
        self.budget = self.budget % self._most + 1


GOVERNORS: dict[str, Callable[[int], Governor]] = {
    "fixed": Steady,
    "graded": Graded,
    "gated": Gated,
    "climbing": Climbing,
}


@contextmanager
def foreseen(
    texts: Texts, *, rate: float, most: int, governor: str, is_weighed: bool, seed: int = 0
) -> Iterator[None]:
    """Workers that are set up meanwhile ask drafters that know the texts."""

    def draft(row: Row) -> RowDraft:
        text = int(row.request.id)
        drafter = Foresight(texts[text], rate, 1000 * seed + text)
        return RowDraft(drafter, GOVERNORS[governor](most))

    def speculation(_: Any, *, kv: KVBatch, window: int, report: Report, **__: Any) -> Speculation:
        assert kv.can_rewind
        info = DraftInfo(kind="scripted", model=None, max_draft=most)
        return Speculation(
            info,
            draft,
            max_batch=len(texts),
            window=window,
            report=report,
            prices=Prices() if is_weighed else None,
        )

    original = chat.speculation_from
    chat.speculation_from = speculation  # type: ignore[assignment]
    try:
        yield
    finally:
        chat.speculation_from = original
