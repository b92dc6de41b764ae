"""How far a prompt is, for requests that ask to be told."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheTag
from mlxcel.link.messages import RowAccepted, RowProgress, RowStarted, Submit
from tests.engine.driver import Driver, submit


def prompt(length: int, seed: int = 0) -> list[int]:
    return [1 + (7 * i + seed) % 90 for i in range(length)]


def asking(name: str, tokens: list[int], max_tokens: int = 3, **options: Any) -> Submit:
    return submit(name, tokens, max_tokens, tells_progress=True, **options)


def told(driver: Driver, name: str) -> list[tuple[int, int, int]]:
    """Each as (total, cached, processed)."""
    events = [e for e in driver.events(name) if isinstance(e, RowProgress)]
    took = [event.took_ms for event in events]
    assert took == sorted(took)
    assert all(ms >= 0.0 for ms in took)
    return [(event.total, event.cached, event.processed) for event in events]


@pytest.mark.parametrize("is_mixed", [False, True], ids=["plain", "mixed"])
@pytest.mark.parametrize("is_busy", [False, True], ids=["alone", "beside"])
def test_told_at_the_start_and_after_each_chunk(tiny: Path, is_busy: bool, is_mixed: bool) -> None:
    driver = Driver(tiny, prefill_chunk_size=16, mixed_step=is_mixed, prefill_grant_interval=1)
    if is_busy:
        driver.tick(submit("busy", prompt(5), 60))
    driver.run(asking("a", prompt(40), choices=2))
    assert told(driver, "a") == [(40, 0, 0), (40, 0, 16), (40, 0, 32), (40, 0, 40)]
    kinds = [type(event) for event in driver.events("a")]
    assert kinds[:6] == [RowAccepted, *[RowProgress] * 4, RowStarted]
    assert not told(driver, "busy")


def test_each_of_a_cohort_is_told(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(asking("a", prompt(40)), submit("b", prompt(20), 3), asking("c", prompt(30, 1)))
    assert driver.stats.prefill_chunks == 1
    assert told(driver, "a") == [(40, 0, 0), (40, 0, 40)]
    assert told(driver, "b") == []
    assert told(driver, "c") == [(30, 0, 0), (30, 0, 30)]


def test_what_is_cached_counts_as_processed(tiny: Path) -> None:
    driver = Driver(tiny, prefill_chunk_size=32)
    driver.run(submit("first", prompt(100), 2, cache=CacheTag()))
    driver.run(asking("a", prompt(140), cache=CacheTag()))
    assert told(driver, "a") == [(140, 96, 96), (140, 96, 128), (140, 96, 140)]


def test_nothing_left_to_read_is_told_as_done(tiny: Path) -> None:
    conversations = {"conversations": {"enabled": True}, "prompt": {"min_prefix": 1}}
    driver = Driver(tiny, cache=conversations)
    tag = CacheTag(session="b")
    driver.run(submit("first", prompt(50), 2, cache=tag))
    driver.run(asking("a", prompt(50), cache=tag))
    assert told(driver, "a") == [(50, 49, 49), (50, 49, 50)]


def test_prompt_of_one_token(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(asking("a", [65]))
    assert told(driver, "a") == [(1, 0, 0), (1, 0, 1)]


def test_choices_without_a_place_tell_nothing_more(tiny: Path) -> None:
    driver = Driver(tiny, parallel=1)
    driver.run(asking("a", prompt(40), choices=3))
    assert told(driver, "a") == [(40, 0, 0), (40, 0, 40)]
    assert driver.stats.started == 1
