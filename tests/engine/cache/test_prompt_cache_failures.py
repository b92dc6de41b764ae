"""The prompt cache when something fails, is forgotten or comes from disk while rows run."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import Reject, Source
from mlxcel.core.request import Lane
from mlxcel.link.messages import Ask, Cancel, Question, RowFailed, RowStarted
from tests.engine.cache.warm_rows import (
    PROMPT,
    TAG,
    TOKEN,
    ask,
    assert_cold,
    keeping,
    no_memory,
    report,
    reused,
    stats,
    until,
)
from tests.engine.driver import Driver, submit
from tests.engine.test_failures import BANNED, failing, is_prefill, is_step

# Failures.


def test_failed_prefill_leaves_nothing(tiny: Path) -> None:
    driver = Driver(tiny)
    with failing(driver, is_prefill):
        driver.run(submit("bad", PROMPT, 4, cache=TAG))
    assert isinstance(driver.failure("bad"), RowFailed)
    assert stats(driver)["entries"] == 0
    driver.run(submit("two", PROMPT, 12, cache=TAG))
    assert reused(driver, "two") == 0
    assert_cold(driver, submit("two", PROMPT), PROMPT)


def test_failed_rest_of_a_prompt_leaves_what_it_went_on_from(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    with failing(driver, is_prefill):
        driver.run(submit("bad", [*PROMPT, 3, 4, 5], 4, cache=TAG))
    assert driver.failure("bad") is not None
    driver.run(submit("two", [*PROMPT, 3, 4, 5], 12, cache=TAG))
    assert reused(driver, "two") == 128
    assert_cold(driver, submit("two", []), [*PROMPT, 3, 4, 5])


def test_failed_step_takes_what_was_kept_since(tiny: Path) -> None:
    """The row that was cancelled rests on the same step."""
    driver = Driver(tiny)
    driver.run(submit("old", [9, *PROMPT], 4, cache=TAG))
    driver.tick(submit("one", PROMPT, 60, cache=TAG), submit("two", PROMPT[:20], 60, cache=TAG))
    until(driver, lambda: len(driver.tokens("one")) > 40)
    with failing(driver, is_step):
        driver.tick(Cancel(id="one"))
    assert driver.failure("two") is not None
    driver.run(submit("three", [*PROMPT, *driver.tokens("one"), 4], 12, cache=TAG))
    assert reused(driver, "three") <= 128  # the prompt, which was waited for; not the answer
    driver.run(submit("four", [9, *PROMPT], 4, cache=TAG))
    assert reused(driver, "four") == 128


def test_failed_rows_leave_only_their_prompts(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.tick(submit("one", PROMPT, 60, cache=TAG))
    until(driver, lambda: len(driver.tokens("one")) > 40)
    with failing(driver, is_step):
        driver.tick()
    said = driver.tokens("one")
    driver.run(submit("two", [*PROMPT, *said, 4], 12, cache=TAG))
    assert reused(driver, "two") == 128
    assert_cold(driver, submit("two", []), [*PROMPT, *said, 4])


@pytest.mark.parametrize("choices", [1, 2])
def test_row_that_can_say_nothing_leaves_its_prompt_alone(tiny: Path, choices: int) -> None:
    driver = Driver(tiny)
    driver.run(submit("bad", PROMPT, 12, cache=TAG, choices=choices, **BANNED))
    assert driver.failure("bad") is not None
    assert stats(driver)["bytes"] == 149 * TOKEN  # the last token was read by the step that failed


def test_row_that_leaves_in_the_step_that_fails_leaves_nothing_of_its_answer(tiny: Path) -> None:
    """Its last token is in flight, and the next step, without it, fails."""
    driver = Driver(tiny)
    driver.tick(submit("short", PROMPT, 60, cache=TAG), submit("long", PROMPT[:9], 90))
    until(driver, lambda: len(driver.tokens("short")) == 59)
    with failing(driver, is_step):
        driver.tick()
    assert driver.failure("long") is not None
    driver.run(submit("two", [*PROMPT, *driver.tokens("short"), 4], 12, cache=TAG))
    assert reused(driver, "two") <= 128


@pytest.mark.parametrize("moment", ["end", "cancel", "choice", "prompt", "parked"])
def test_copy_that_cannot_be_made_costs_nobody_anything(
    tiny: Path, moment: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory is full just when a copy is to be made."""
    driver = Driver(tiny, prefill_chunk_size=64 if moment == "parked" else 2048)
    driver.tick(submit("one", PROMPT, 30, cache=TAG, choices=1 + (moment == "choice")))
    if moment != "prompt":
        until(driver, lambda: len(driver.tokens("one")) > 5 or moment == "parked")
    with monkeypatch.context() as patch:
        patch.setattr("mlxcel.engine.cache.columns.mx.async_eval", no_memory)
        if moment in ("cancel", "parked"):
            driver.worker._take(Cancel(id="one"))
        elif moment == "choice":
            driver.worker._take(Cancel(id="one", choice=1))
        else:
            kept = driver.worker._scheduler._cache
            row = driver.worker._scheduler._decoder.rows[0]
            kept.keep_row(row, driver.worker._scheduler._decoder._kv, 0)
    driver.run()
    if moment != "prompt":
        assert sum("that was to be kept is lost" in line for line in caplog.messages) == 1
    driver.run(submit("two", PROMPT, 12, cache=TAG))
    assert_cold(driver, submit("two", PROMPT), PROMPT)
    assert driver.stats.kv_blocks == 0


def test_kept_that_turns_out_not_to_be_there_is_dropped(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(tiny)
    driver.tick(submit("one", PROMPT, 4, cache=TAG))
    assert stats(driver)["bytes"] == 149 * TOKEN
    with monkeypatch.context() as patch:
        patch.setattr("mlxcel.engine.cache.columns.mx.eval", no_memory)
        driver.tick()
    assert any("KV that was to be kept is lost" in line for line in caplog.messages)
    assert (stats(driver)["bytes"], stats(driver)["entries"]) == (0, 0)
    driver.run(Cancel(id="one"), submit("two", PROMPT, 4, cache=TAG))
    assert_cold(driver, submit("two", PROMPT), PROMPT, length=4)


# Disk.


def on_disk(tiny: Path, folder: Path, **options: Any) -> Driver:
    return Driver(tiny, cache={"disk": {"path": str(folder), "min_free_bytes": 0}}, **options)


@pytest.fixture
def written(tiny: Path, tmp_path: Path) -> Path:
    """The prompt, by an earlier server."""
    driver = on_disk(tiny, tmp_path)
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    driver.close()
    return tmp_path


def test_prompt_waits_for_its_files(tiny: Path, written: Path) -> None:
    driver = on_disk(tiny, written)
    driver.run(submit("two", [*PROMPT, 3], 12, cache=TAG))
    assert (report(driver, "two").source, reused(driver, "two")) == (Source.DISK, 128)
    assert_cold(driver, submit("two", []), [*PROMPT, 3])
    driver.run(submit("three", [*PROMPT, 3], 12, cache=TAG))
    assert report(driver, "three").source is Source.MEMORY
    driver.close()


def test_what_was_brought_and_does_not_fit_is_told(tiny: Path, written: Path) -> None:
    driver = Driver(
        tiny,
        cache={
            "disk": {"path": str(written), "min_free_bytes": 0},
            "prompt": {"capacity_bytes": 100 * TOKEN},
        },
    )
    driver.run(submit("two", [*PROMPT, 3], 12, cache=TAG))
    assert reused(driver, "two") == 0
    assert report(driver, "two").reason is Reject.OVERSIZED
    assert_cold(driver, submit("two", []), [*PROMPT, 3])
    driver.close()


def test_cancelled_while_its_files_are_read(tiny: Path, written: Path) -> None:
    driver = on_disk(tiny, written)
    driver.run(submit("two", [*PROMPT, 3], 12, cache=TAG), Cancel(id="two"))
    assert not driver.events("two")
    assert (driver.worker._scheduler.held, len(driver.worker._fetching)) == (0, 0)
    driver.run(submit("three", [*PROMPT, 3], 12, cache=TAG))
    assert reused(driver, "three") == 128
    driver.close()


def test_reset_while_files_are_read(tiny: Path, written: Path) -> None:
    driver = on_disk(tiny, written)
    driver.run(
        submit("two", [*PROMPT, 3], 12, cache=TAG), Ask(id="r", question=Question.CACHE_RESET)
    )
    assert reused(driver, "two") == 0
    assert report(driver, "two").reason is Reject.EMPTY_SET
    assert_cold(driver, submit("two", []), [*PROMPT, 3])
    driver.close()


def test_what_was_forgotten_is_not_written_afterwards(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row leaves and the cache is emptied, in one breath."""
    driver = on_disk(tiny, tmp_path)
    driver.tick(submit("one", PROMPT, 60))
    driver.tick(submit("two", [9, *PROMPT], 60, cache=TAG))
    until(driver, lambda: len(driver.tokens("two")) > 5)
    written: list[object] = []
    monkeypatch.setattr(keeping(driver).spill, "write", lambda *what: written.append(what))
    driver.worker._take(Cancel(id="two"))
    driver.run(Ask(id="r", question=Question.CACHE_RESET))
    driver.close()
    assert not written
    later = on_disk(tiny, tmp_path)
    later.run(submit("two", [9, *PROMPT], 4, cache=TAG))
    assert reused(later, "two") == 0
    later.close()


def test_what_was_kept_last_is_written_though_the_worker_sleeps(tiny: Path, tmp_path: Path) -> None:
    driver = on_disk(tiny, tmp_path)
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    disk = stats(driver)["disk"]
    assert disk["queue_bytes"] + disk["bytes"] >= 161 * TOKEN
    driver.close()


def test_cache_that_is_off_touches_no_disk(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    options = {"prompt": {"enabled": False}, "disk": {"path": str(folder)}}
    driver = Driver(tiny, cache=options)
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    assert not folder.exists()
    assert driver.finish("one").usage.cached_tokens is None


# What is told.


def test_first_token_tells_what_was_used(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    driver.run(submit("two", [*PROMPT, 3], 4, cache=TAG, lane=Lane.LOW))
    (started,) = [event for event in driver.events("two") if isinstance(event, RowStarted)]
    assert started.cache is not None
    assert started.cache.reused == 128


def test_counters_of_hits_misses_and_cold_requests(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    driver.run(submit("two", PROMPT, 4, cache=TAG))
    driver.run(submit("cold", PROMPT, 4))
    driver.run(submit("short", PROMPT[:20], 4, cache=TAG))
    driver.run(submit("parts", [*PROMPT[:70], 99, 98], 4, cache=TAG))
    told = ask(driver, Question.CACHE_STATS)
    assert (told["lookups"], told["hits"]) == (4, 2)
    assert report(driver, "parts").reason is Reject.BLOCK_BOUNDARY_FLOOR
    assert told["reject_block_boundary_floor"] == 0  # it was a hit
    assert told["reject_disabled"] == 1
    assert told["reject_empty_set"] == 1
    assert told["reject_prefix_too_short"] == 1
    assert told["last_reject_reason"] == "prefix_too_short"
    assert told["last_reject_seq_id"] == "short"
    assert told["last_reject_context_len"] == 20
