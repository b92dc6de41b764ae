"""Modified rejection over the engine: rows that draw in view of their proposals, beside others."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxcel.core.events import Drafted
from mlxcel.core.steering import Thinking
from mlxcel.engine.draft.base import RowDraft
from mlxcel.engine.draft.governor import Graded
from mlxcel.engine.draft.prompt_lookup import PromptLookup
from mlxcel.engine.draft.rejection import in_view_first, in_view_later
from mlxcel.engine.request import request_from
from mlxcel.engine.sampling.rejection import NOTHING
from mlxcel.engine.sequence import Sequence as Row
from mlxcel.engine.sequence import sequences_of
from mlxcel.link.messages import RowTokens, Submit
from tests.engine.draft.test_full_model import DRAFT
from tests.engine.driver import Driver, submit

REJECTING = DRAFT | {"stochastic_accept": True}


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Driver:
    return Driver(tiny, parallel=4)


@pytest.fixture(scope="module")
def other_drafts(tiny: Path, other: Path) -> Iterator[Driver]:
    driver = Driver(tiny, parallel=4, draft=REJECTING, drafter=other)
    yield driver
    driver.close()


@pytest.fixture(scope="module")
def itself_drafts(tiny: Path) -> Iterator[Driver]:
    driver = Driver(tiny, parallel=4, draft=REJECTING, drafter=tiny)
    yield driver
    driver.close()


def answered(driver: Driver, *requests: Submit) -> list[list[int]]:
    driver.frames.clear()
    driver.run(*requests)
    return [driver.tokens(request.id) for request in requests]


def drafted(driver: Driver, name: str = "r") -> Drafted:
    found = driver.finish(name).timings.drafted
    assert found is not None
    return found


def row(odds: mx.array | None) -> Row:
    request = request_from(submit("r", [1, 2, 3]), window=0, lora=(), now_s=0.0)
    (made,) = sequences_of(request, [None])
    made.draft = RowDraft(PromptLookup(ngram_min=1, ngram_max=1), Graded(3), odds=odds)
    return made


def test_each_place_is_seen_with_its_own_proposal_and_odds() -> None:
    odds = mx.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.5, 0.5]])
    rows = [row(odds), row(None), row(odds[:1]), row(odds)]
    proposed = [[1, 2, 3], [1, 2], [0], []]  # the odds of the last are those of an older proposal
    first, later = in_view_first(rows, proposed), in_view_later(rows, proposed)
    assert first is not None
    assert later is not None
    assert first.tokens[:, 0].tolist() == [1, NOTHING, 0, NOTHING]
    assert later.tokens[:, 0].tolist() == [2, 3, NOTHING, NOTHING, NOTHING, NOTHING]
    assert first.odds[0].tolist() == first.odds[2].tolist() == odds[0].tolist()
    assert later.odds[:2].tolist() == odds[1:].tolist()
    assert in_view_first(rows[1:2], proposed[1:2]) is None
    assert in_view_later(rows[1:2], proposed[1:2]) is None


def test_greedy_texts_are_those_of_plain_steps(plain: Driver, other_drafts: Driver) -> None:
    """Beside rows that draw, in the same rounds; theirs do not depend on who is there."""
    numbers = random.Random(6)
    for n in range(3):
        ways: list[dict[str, Any]] = [
            {"temperature": 0.0},
            {"temperature": 1.0, "top_k": 1},
            {"temperature": 1.0},
        ]
        rows = [
            submit(f"{place}", [numbers.randrange(256) for _ in range(5)], 17, seed=n, **way)
            for place, way in enumerate(ways)
        ]
        together = answered(other_drafts, *rows)
        assert together[:2] == answered(plain, *rows)[:2]
        assert [answered(other_drafts, row)[0] for row in rows] == together


def test_a_drafter_with_the_same_odds_is_always_right(plain: Driver, itself_drafts: Driver) -> None:
    """Though it draws with numbers of its own, so the text is another one."""
    request = submit("r", [1, 2, 3], 18, temperature=1.0, seed=3)
    text = answered(itself_drafts, request)
    assert drafted(itself_drafts) == Drafted(kind="full-model", rounds=3, proposed=15, accepted=15)
    assert text != answered(plain, request)
    assert text == answered(itself_drafts, request)


def test_eos_in_the_middle_of_a_run(itself_drafts: Driver) -> None:
    request = submit("r", [1, 2, 3], 18, temperature=1.0, seed=4)
    (text,) = answered(itself_drafts, request)
    ended = submit("r", [1, 2, 3], 18, temperature=1.0, seed=4, eos=(text[9],))
    assert answered(itself_drafts, ended) == [text[: text.index(text[9])]]
    assert drafted(itself_drafts).accepted >= 5
    assert (itself_drafts.stats.kv_bytes, itself_drafts.stats.active) == (0, 0)


def test_the_last_token_of_all_is_the_rows_own(itself_drafts: Driver) -> None:
    """Behind the last proposal, which leaves room for it."""
    (text,) = answered(itself_drafts, submit("r", [1, 2, 3], 18, temperature=1.0, seed=4))
    (said,) = answered(itself_drafts, submit("r", [1, 2, 3], 9, temperature=1.0, seed=4))
    assert (len(said), said[:8]) == (9, text[:8])
    assert drafted(itself_drafts) == Drafted(kind="full-model", rounds=2, proposed=7, accepted=7)


def test_a_thinking_budget_holds(itself_drafts: Driver) -> None:
    block = Thinking(open_ids=(60,), close_ids=(62, 10), message_ids=(33,), budget=9, is_open=True)
    request = submit("r", [1, 2, 3], 24, temperature=1.0, seed=5, thinking=block)
    (said,) = answered(itself_drafts, request)
    assert said[9:12] == [33, 62, 10]
    tokens = [e for e in itself_drafts.events("r") if isinstance(e, RowTokens)]
    assert [n for n, event in enumerate(tokens) if event.is_forced] == [9, 10, 11]
    assert drafted(itself_drafts).accepted > 9
