"""The prompt cache with the real engine on a tiny model: what is reused, what is said of it, and
that nobody can tell from the answer."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheReport, CacheStatus, CacheTag, Reject, Source
from mlxcel.core.events import FinishReason
from mlxcel.link.messages import Ask, Cancel, Question, RowAccepted, RowStarted
from tests.engine.driver import Driver, submit

PROMPT = [1 + (7 * i) % 90 for i in range(150)]
TAG = CacheTag()


@pytest.fixture
def driver(tiny: Path) -> Driver:
    return Driver(tiny)


def report(driver: Driver, name: str) -> CacheReport:
    found = driver.finish(name).timings.cache
    assert found is not None
    return found


def stats(driver: Driver) -> dict[str, Any]:
    driver.run(Ask(id="stats", question=Question.CACHE_STATS))
    (reply,) = [r for f in driver.frames for r in f.replies if r.id == "stats"][-1:]
    return reply.value


def test_second_turn_reads_only_what_is_new(driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 20, cache=TAG))
    turn = [*PROMPT, *driver.tokens("one"), 5, 6, 7]
    driver.run(submit("two", turn, 20, cache=TAG))
    driver.run(submit("cold", turn, 20))
    assert report(driver, "one") == CacheReport(status=CacheStatus.MISS, reason=Reject.EMPTY_SET)
    assert report(driver, "two").status is CacheStatus.HIT
    assert report(driver, "two").reused == 160  # 150 + 19 that were read, floored to 32
    assert report(driver, "two").source is Source.MEMORY
    assert driver.tokens("two") == driver.tokens("cold")
    assert driver.finish("two").usage.cached_tokens == 160


def test_report_is_told_on_arrival_and_at_the_first_token(driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    driver.run(submit("two", [*PROMPT, 3], 4, cache=TAG))
    accepted, started = driver.events("two")[:2]
    assert isinstance(accepted, RowAccepted)
    assert isinstance(started, RowStarted)
    assert accepted.cache == started.cache == report(driver, "two")


def test_rows_that_adopt_one_entry_at_once_say_what_they_would_cold(driver: Driver) -> None:
    turns = [[*PROMPT, 3, 4], [*PROMPT, 8, 9, 10]]
    cold = [driver.alone(submit(f"cold{i}", turn, 24)) for i, turn in enumerate(turns)]
    driver.run(submit("first", PROMPT, 4, cache=TAG))
    driver.run(*[submit(f"warm{i}", turn, 24, cache=TAG) for i, turn in enumerate(turns)])
    assert [driver.tokens(f"warm{i}") for i in range(2)] == cold
    assert [report(driver, f"warm{i}").reused for i in range(2)] == [128, 128]


def test_prompt_is_there_while_its_answer_is_still_said(driver: Driver) -> None:
    driver.tick(submit("long", PROMPT, 60, cache=TAG))
    while not driver.tokens("long"):
        driver.tick()
    driver.run(submit("second", [*PROMPT, 3], 4, cache=TAG))
    assert report(driver, "second").reused == 128


def test_cancelled_row_leaves_what_it_has_read(driver: Driver) -> None:
    driver.tick(submit("one", PROMPT, 400, cache=TAG))
    while len(driver.tokens("one")) < 40:
        driver.tick()
    said = driver.tokens("one")
    driver.run(Cancel(id="one"))
    driver.run(submit("two", [*PROMPT, *said, 9], 4, cache=TAG))
    assert report(driver, "two").reused >= 160


def test_cold_request_neither_reads_nor_keeps(driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    before = stats(driver)
    driver.run(submit("two", PROMPT, 4))
    after = stats(driver)
    assert report(driver, "two").status is CacheStatus.OFF
    assert driver.finish("two").usage.cached_tokens == 0
    assert {k: after[k] for k in ("lookups", "inserts", "entries", "bytes")} == {
        k: before[k] for k in ("lookups", "inserts", "entries", "bytes")
    }


def test_sessions_do_not_see_each_other(driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 4, cache=CacheTag(session="a")))
    driver.run(submit("two", PROMPT, 4, cache=CacheTag(session="b")))
    driver.run(submit("three", PROMPT, 4, cache=TAG))
    for name in ("two", "three"):
        found = report(driver, name)
        assert (found.status, found.reason, found.diverged) == (
            CacheStatus.MISS,
            Reject.EMPTY_SET,
            None,
        )


def test_changed_tools_are_named(driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    driver.run(submit("two", PROMPT, 4, cache=CacheTag(tools=b"\1" * 32)))
    found = report(driver, "two")
    assert found.status is CacheStatus.MISS
    assert found.diverged is not None
    assert found.diverged.differs == ("tools",)


def test_changed_word_is_placed(driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    other = list(PROMPT)
    other[20] = 99
    driver.run(submit("two", other, 4, cache=TAG))
    found = report(driver, "two")
    assert found.reason is Reject.PREFIX_TOO_SHORT
    assert found.diverged is not None
    assert found.diverged.at == 20
    offset = 20 - found.diverged.start
    assert found.diverged.prompt_ids[offset] == 99
    assert found.diverged.entry_ids[offset] == PROMPT[20]


def test_preempted_row_finds_what_it_had_read(tiny: Path) -> None:
    driver = Driver(tiny, parallel=1, preemption="longest-first")
    alone = Driver(tiny).alone(submit("low", PROMPT, 60))
    driver.tick(submit("low", PROMPT, 60, lane=2, cache=TAG))
    while len(driver.tokens("low")) < 20:
        driver.tick()
    before = driver.stats.prompt_tokens
    driver.run(submit("high", [3, 4, 5], 4, lane=0, cache=TAG))
    assert driver.tokens("low") == alone
    assert driver.stats.preemptions == 1
    assert driver.stats.prompt_tokens - before < 40
    assert report(driver, "low").status is CacheStatus.MISS  # as it was when it began


def test_reset_frees_everything_and_running_rows_go_on(driver: Driver) -> None:
    cold = Driver(driver.model.folder).alone(submit("x", PROMPT, 40))
    driver.tick(submit("one", PROMPT, 40, cache=TAG))
    while not driver.tokens("one"):
        driver.tick()
    driver.run(Ask(id="reset", question=Question.CACHE_RESET))
    (reply,) = [r for f in driver.frames for r in f.replies]
    assert reply.value["cleared"] is True
    assert reply.value["freed_entries"] == 1
    assert reply.value["freed_bytes"] > 0
    assert driver.tokens("one") == cold


def test_window_that_is_full_forgets_and_goes_on(tiny: Path) -> None:
    options = {"context_shift": True, "keep": 4}
    driver = Driver(tiny, ctx_size=512, parallel=4, cache=options)
    driver.run(submit("one", PROMPT[:60], 300))
    assert len(driver.tokens("one")) == 300
    assert driver.reason("one") is FinishReason.LENGTH
    # The first shift: the window is full, 4 tokens stay, and the newer half of the others.
    window = 128
    said = driver.tokens("one")
    first = [*PROMPT[:60], *said][:window]
    rest = len(first) - 4
    left = [*first[:4], *first[4 + rest // 2 :]]
    alone = Driver(tiny).alone(submit("alone", left, 10))
    at = len(first) - 60
    assert said[at : at + 10] == alone
