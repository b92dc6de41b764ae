"""Prompts that are read into the cache while there is nothing else to do."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from mlxcel.core.cache import CacheTag, Source
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.steering import Constraint
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.generation.structured import compiled
from mlxcel.link.messages import Cancel, SetLora, Warm, pack_tokens
from tests.engine.cache.warm_rows import (
    PROMPT,
    TAG,
    assert_cold,
    no_memory,
    report,
    reused,
    stats,
    until,
)
from tests.engine.driver import Driver, submit
from tests.engine.test_failures import failing, is_prefill
from tests.weights.adapters import lora_options, pairs, write_mlx

CHUNKED: dict[str, Any] = {"prefill_chunk_size": 32}


def warm(prompt: list[int], tag: CacheTag = TAG) -> Warm:
    return Warm(tokens=pack_tokens(prompt), tag=tag)


def counted(driver: Driver) -> tuple[int, int]:
    told = stats(driver)
    return told["snapshot_warmups_run"], told["snapshot_warmups_skipped"]


def test_request_finds_what_was_read_for_it(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(warm(PROMPT))
    assert counted(driver) == (1, 0)
    driver.run(submit("one", [*PROMPT, 3], 12, cache=TAG))
    assert reused(driver, "one") == 128
    assert_cold(driver, submit("one", []), [*PROMPT, 3])
    assert driver.stats.kv_blocks == 0


def test_it_goes_on_from_what_is_kept(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(submit("one", PROMPT[:100], 4, cache=TAG))
    lengths = []
    begin = driver.worker._warming._prefiller.begin
    driver.worker._warming._prefiller.begin = lambda job: lengths.append(begin(job))  # type: ignore
    driver.run(warm(PROMPT))
    assert lengths == [149 - 96]


def test_it_is_read_a_chunk_a_tick(tiny: Path) -> None:
    driver = Driver(tiny, **CHUNKED)
    driver.tick(warm(PROMPT))
    for _ in range(3):
        assert counted(driver) == (0, 0)
        driver.tick()
    assert counted(driver) == (0, 0)
    driver.tick()
    assert counted(driver) == (1, 0)


def test_nothing_is_read_while_a_row_decodes(tiny: Path) -> None:
    driver = Driver(tiny, **CHUNKED)
    driver.tick(submit("busy", PROMPT[:20], 40))
    driver.tick(warm(PROMPT))
    until(driver, lambda: len(driver.tokens("busy")) >= 38)
    assert len(driver.worker._warming) == 1
    assert stats(driver)["entries"] == 0
    driver.run()
    assert counted(driver) == (1, 0)


def test_who_comes_meanwhile_stops_it_and_finds_what_was_read(tiny: Path) -> None:
    driver = Driver(tiny, **CHUNKED)
    driver.tick(warm(PROMPT))
    driver.tick()
    driver.tick()
    driver.run(submit("one", [*PROMPT, 3], 12, cache=TAG))
    assert reused(driver, "one") == 96
    assert counted(driver) == (0, 1)
    assert_cold(driver, submit("one", []), [*PROMPT, 3])


def test_nothing_is_read_while_a_constraint_is_compiled(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, real = Event(), Compiler.matcher

    def slow(*args: Any) -> Any:
        assert may_go_on.wait(20)
        return real(*args)

    monkeypatch.setattr(Compiler, "matcher", slow)
    driver = Driver(tiny, **CHUNKED)
    digits = Constraint(grammar=compiled(OutputFormat(kind=OutputKind.REGEX, source="[0-9]{4}")))
    driver.tick(warm(PROMPT), submit("one", [9, *PROMPT], 12, constraint=digits, cache=TAG))
    for _ in range(5):
        driver.tick()
    assert len(driver.worker._warming) == 1
    assert stats(driver)["bytes"] == 0
    driver.tick(Cancel(id="one"))
    may_go_on.set()
    driver.run()
    assert not driver.events("one")
    assert counted(driver) == (1, 0)


def test_it_is_kept_under_the_scales_it_was_read_with(tiny: Path, tmp_path: Path) -> None:
    """They change before its turn comes."""
    folders = [write_mlx(tmp_path / "0"), write_mlx(tmp_path / "1", pairs(seed=1))]
    driver = Driver(tiny, lora=lora_options(*folders, scales=[1.0, 0.0]))
    driver.run(warm(PROMPT), SetLora(((1, 1.0),)))
    turns = {name: [*PROMPT, 3] for name in ("now", "back")}
    driver.run(submit("now", turns["now"], 12, cache=TAG))
    driver.run(SetLora(((0, 1.0),)), submit("back", turns["back"], 12, cache=TAG))
    assert reused(driver, "now") == 0
    assert reused(driver, "back") == 128
    driver.run(submit("cold", [*PROMPT, 3], 12))
    assert driver.tokens("back") == driver.tokens("cold") != driver.tokens("now")


def test_failed_one_keeps_nothing_and_the_next_is_read(
    tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(tiny)
    with failing(driver, is_prefill):
        driver.run(warm(PROMPT))
    assert any("a warm-up failed" in line for line in caplog.messages)
    assert (counted(driver), stats(driver)["entries"]) == ((0, 0), 0)
    driver.run(warm(PROMPT))
    assert counted(driver) == (1, 0)
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    assert_cold(driver, submit("one", []), PROMPT)


def test_chunk_that_fails_takes_those_before_it_along(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has written is not there."""
    driver = Driver(tiny, **CHUNKED)
    driver.tick(warm(PROMPT))
    driver.tick()
    with monkeypatch.context() as patch:
        patch.setattr(driver.worker._warming._prefiller, "finish", no_memory)
        driver.tick()
    driver.run()
    assert stats(driver)["bytes"] == 0


def test_without_a_cache_it_is_ignored(tiny: Path) -> None:
    driver = Driver(tiny, cache={"prompt": {"enabled": False}})
    driver.run(warm(PROMPT))
    assert len(driver.worker._warming) == 0
    assert driver.worker._report.prompt_tokens == 0


def test_prompt_of_one_token_is_no_work(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(warm([3]))
    assert (len(driver.worker._warming), stats(driver)["entries"]) == (0, 0)


def test_it_is_written_though_nothing_else_happens(tiny: Path, tmp_path: Path) -> None:
    """The worker sleeps once it is read."""
    options = {"disk": {"path": str(tmp_path), "min_free_bytes": 0}}
    driver = Driver(tiny, cache=options)
    driver.run(warm(PROMPT))
    assert stats(driver)["disk"]["queue_bytes"] > 0 or stats(driver)["disk"]["files"] == 1
    driver.close()
    later = Driver(tiny, cache=options)
    later.run(submit("one", [*PROMPT, 3], 12, cache=TAG))
    assert (report(later, "one").source, reused(later, "one")) == (Source.DISK, 128)
    later.close()
