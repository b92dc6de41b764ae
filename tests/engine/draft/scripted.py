"""Drafters that know, or do not know, what is coming."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from mlxcel.core.status import DraftInfo
from mlxcel.engine import chat
from mlxcel.engine.draft.base import Drafter, RowDraft
from mlxcel.engine.draft.prices import Prices
from mlxcel.engine.draft.speculation import Speculation
from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.report import Report
from mlxcel.engine.sequence import Sequence as Row

SCRIPTED = DraftInfo(kind="scripted", model=None, max_draft=5)


class Always:
    """As many tokens as it may."""

    def __init__(self, most: int) -> None:
        self.budget = most
        self.watches = False

    def passed(self) -> None: ...

    def took(self, accepted: int) -> None: ...

    def came_true(self, is_right: bool) -> None: ...


class Scripted:
    """`foresee(heard, count)` says what it proposes."""

    is_free = True
    odds = None

    def __init__(self, foresee: Callable[[list[int], int], list[int]]) -> None:
        self.heard: list[int] = []
        self._foresee = foresee

    def hear(self, tokens: Sequence[int]) -> None:
        self.heard.extend(tokens)

    def propose(self, count: int) -> list[int]:
        return self._foresee(self.heard, count)


@contextmanager
def drafting(
    make: Callable[[], Drafter],
    *,
    most: int = 5,
    max_batch: int = 4,
    prices: Prices | None = None,
) -> Iterator[list[RowDraft]]:
    """Workers that are set up meanwhile ask these drafters. -> what is remembered of each row."""
    made: list[RowDraft] = []

    def row(_: Row) -> RowDraft:
        made.append(RowDraft(make(), Always(most)))
        return made[-1]

    def speculation(_: Any, *, kv: KVBatch, window: int, report: Report, **__: Any) -> Speculation:
        assert kv.can_rewind
        return Speculation(
            SCRIPTED, row, max_batch=max_batch, window=window, report=report, prices=prices
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat, "speculation_from", speculation)
        yield made
