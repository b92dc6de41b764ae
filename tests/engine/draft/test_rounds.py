"""Rounds with drafters that are always right, never, or sometimes: what is said is what would have
been said without, and nothing is left behind."""

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mlxcel.core.cache import CacheTag
from mlxcel.core.sampling import Dry, Mirostat
from mlxcel.core.steering import LoopGuard, Thinking
from mlxcel.engine.draft.rounds import run_of
from mlxcel.link.messages import Cancel, RowFailed, RowFinished, Submit
from tests.engine.draft.scripted import Scripted, drafting
from tests.engine.driver import Driver, submit

PROMPTS = [[5], list(range(31)), [i % 250 for i in range(200)]]
LENGTHS = [1, 2, 17]
WAYS = [{"temperature": 0.0}, {"temperature": 1.0, "seed": 11}, {"temperature": 0.7, "top_p": 0.9}]
KINDS = ["right", "wrong", "mixed"]


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Driver:
    return Driver(tiny, parallel=4)


class Oracle:
    """Knows every answer beforehand, and tells the truth as `kind` says."""

    def __init__(self, answers: dict[tuple[int, ...], list[int]], kind: str) -> None:
        self._answers = answers
        self._kind = kind
        self._random = random.Random(3)

    def __call__(self) -> Scripted:
        return Scripted(self._foresee)

    def _foresee(self, heard: list[int], count: int) -> list[int]:
        texts = ([*prompt, *answer] for prompt, answer in self._answers.items())
        text = next((text for text in texts if text[: len(heard)] == heard), heard)
        coming = text[len(heard) : len(heard) + count]
        match self._kind:
            case "wrong":
                return [(token + 1) % 256 for token in coming]
            case "mixed":
                return [t if self._random.random() < 0.7 else (t + 1) % 256 for t in coming]
        return coming


def answered(driver: Driver, request: Submit) -> list[int]:
    driver.frames.clear()
    driver.run(request)
    return driver.tokens(request.id)


def rounds_of(driver: Driver, name: str) -> tuple[int, int]:
    """Verify rounds of a request that has ended, and tokens that came true in them."""
    (end,) = [event for event in driver.events(name) if isinstance(event, RowFinished)]
    drafted = end.timings.drafted
    return (0, 0) if drafted is None else (drafted.rounds, drafted.accepted)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_that_of_plain_steps(tiny: Path, plain: Driver, kind: str) -> None:
    answers: dict[tuple[int, ...], list[int]] = {}
    with drafting(Oracle(answers, kind)):
        driver = Driver(tiny, parallel=4)
    for prompt, length, way in product(PROMPTS, LENGTHS, WAYS):
        request = submit("r", prompt, length, **way)
        expected = answered(plain, request)
        answers.clear()
        answers[tuple(prompt)] = expected
        assert answered(driver, request) == expected
        assert driver.reason("r") is plain.reason("r")
        rounds, accepted = rounds_of(driver, "r")
        if length == 1:
            assert not rounds
        elif kind == "wrong":
            assert (rounds, accepted) == (length - 1, 0)
        elif kind == "right":
            # 6, 6 and 5 tokens, or 2.
            assert (rounds, accepted) == ((3, 14) if length == 17 else (1, 1))
    driver.close()


def test_rows_of_other_kinds_beside_them(tiny: Path, plain: Driver) -> None:
    """Penalties, a budget, scores, a guard: each with its own text, in one batch with rounds."""
    thinking = Thinking(
        open_ids=(60,), close_ids=(62, 10), message_ids=(33,), budget=3, is_open=True
    )
    others: list[dict[str, Any]] = [
        {"temperature": 1.0, "seed": 5, "presence_penalty": 0.9},
        {"temperature": 1.0, "seed": 6, "thinking": thinking},
        {"temperature": 1.0, "seed": 7, "top_logprobs": 2},
        {"dry": Dry(multiplier=1.0, base=1.75, allowed_length=1, window=32)},
        {"temperature": 1.0, "seed": 8, "mirostat": Mirostat(version=2, rate=0.2, target=3.0)},
        {"loop": LoopGuard(shortest=1, longest=4, count=2)},
    ]
    answers: dict[tuple[int, ...], list[int]] = {}
    with drafting(Oracle(answers, "mixed")):
        driver = Driver(tiny, parallel=4)
    for n, other in enumerate(others):
        first = submit("a", [n, 2, 3], 24, temperature=1.0, seed=n + 20)
        second = submit("b", [n, 9], 24, **other)
        third = submit("c", [n, 4, 4, 4], 24, temperature=0.0)
        expected = {r.id: answered(plain, r) for r in (first, second, third)}
        answers.clear()
        answers |= {(n, 2, 3): expected["a"], (n, 9): expected["b"], (n, 4, 4, 4): expected["c"]}
        driver.frames.clear()
        driver.run(first, second, third)
        assert {name: driver.tokens(name) for name in expected} == expected, other
        assert sum(rounds_of(driver, name)[0] for name in expected) >= 2
    driver.close()


@pytest.mark.parametrize("stop", ["eos", "limit", "loop"])
def test_what_ends_an_answer_in_the_middle_of_a_run(tiny: Path, plain: Driver, stop: str) -> None:
    request = submit("r", [1, 2, 3], 30, temperature=1.0, seed=4)
    text = answered(plain, request)
    eos = text[9]
    if stop == "eos":
        request = replace(request, eos_ids=(eos,))
    elif stop == "limit":
        request = replace(request, max_tokens=9)
    else:
        request = submit("r", [7] * 8, 30, loop=LoopGuard(shortest=1, longest=1, count=3))
    expected = answered(plain, request)
    prompt = tuple([7] * 8 if stop == "loop" else [1, 2, 3])
    with drafting(Oracle({prompt: [*expected, *text]}, "right")):
        driver = Driver(tiny, parallel=4)
        driver.run(request)
    assert driver.tokens("r") == expected
    assert driver.reason("r") is plain.reason("r")
    assert stop == "loop" or rounds_of(driver, "r")[1]
    assert (driver.stats.kv_bytes, driver.stats.active) == (0, 0)
    driver.close()


def test_a_cancelled_row_ends_and_its_neighbour_goes_on(tiny: Path, plain: Driver) -> None:
    one, two = (submit(n, [ord(n), 3], 40, temperature=1.0, seed=9) for n in "ab")
    expected = {r.id: answered(plain, r) for r in (one, two)}
    with drafting(Oracle({(ord(n), 3): expected[n] for n in "ab"}, "mixed")):
        driver = Driver(tiny, parallel=4)
        driver.tick(one, two)
        for _ in range(3):
            driver.tick()
        driver.tick(Cancel(id="a"))
        driver.run()
    said = driver.tokens("a")
    assert len(said) < 40
    assert said == expected["a"][: len(said)]
    assert driver.tokens("b") == expected["b"]
    driver.close()


def test_a_drafter_that_fails_costs_its_row_the_drafts_alone(
    tiny: Path, plain: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    request = submit("r", [1, 2, 3], 20, temperature=1.0, seed=4)
    expected = answered(plain, request)

    def broken(_: list[int], __: int) -> list[int]:
        raise ValueError("the drafter's own fault")

    with drafting(lambda: Scripted(broken)):
        driver = Driver(tiny, parallel=4)
        driver.run(request)
    assert driver.tokens("r") == expected
    assert not [e for e in driver.events("r") if isinstance(e, RowFailed)]
    assert len([r for r in caplog.records if "a drafter failed" in r.message]) == 1
    driver.close()


def test_more_rows_than_the_limit_stop_the_rounds(tiny: Path, plain: Driver) -> None:
    rows = [submit(n, [ord(n), 3], 30, temperature=1.0, seed=9) for n in "abc"]
    expected = {r.id: answered(plain, r) for r in rows}
    answers = {(ord(n), 3): expected[n] for n in "abc"}
    with drafting(Oracle(answers, "wrong"), max_batch=2):
        driver = Driver(tiny, parallel=4)
        driver.tick(*rows[:2])
        driver.tick()
        assert driver.stats.draft_rounds
        driver.tick(rows[2])
        driver.tick()
        between = driver.stats.draft_rounds
        for _ in range(5):
            driver.tick()
        assert driver.stats.draft_rounds == between  # three rows: none
        driver.tick(Cancel(id="b"))
        driver.run()
    assert driver.stats.draft_rounds > between
    assert [driver.tokens(name) for name in "ac"] == [expected[name] for name in "ac"]
    driver.close()


def test_what_a_run_has_read_is_kept_for_the_next_request(tiny: Path, plain: Driver) -> None:
    """The prompt cache takes positions out of rows that were given more than they kept."""
    first = submit("r", list(range(40)), 20, temperature=1.0, seed=4)
    said = answered(plain, first)
    again = submit("s", [*range(40), *said, 7], 20, temperature=1.0, seed=5)
    expected = answered(plain, again)
    answers = {tuple(range(40)): said, (*range(40), *said, 7): expected}
    warm = {"conversations": {"enabled": True}, "prompt": {"min_prefix": 1}}
    with drafting(Oracle(answers, "mixed")):
        driver = Driver(tiny, parallel=4, cache=warm)
        driver.run(replace(first, cache=CacheTag()))
        driver.run(replace(again, cache=CacheTag()))
    assert driver.tokens("s") == expected
    (end,) = [event for event in driver.events("s") if isinstance(event, RowFinished)]
    assert end.usage.cached_tokens == 59  # all but the last token said
    driver.close()


@pytest.mark.parametrize(
    ("first", "proposed", "after", "run"),
    [
        (1, [1, 2, 3], [2, 3, 4], [2, 3, 4]),
        (1, [1, 2, 3], [2, 9, 4], [2, 9]),
        (5, [1, 2], [2, 3], []),
        (1, [], [], []),
        (-1, [1], [2], []),
    ],
)
def test_a_run_ends_where_a_proposal_did_not_come_true(
    first: int, proposed: list[int], after: list[int], run: list[int]
) -> None:
    assert run_of(first, proposed, after) == run
