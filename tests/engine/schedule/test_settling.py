"""A step that fails while it is read to make room for somebody."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxcel.core.request import Lane
from tests.engine.driver import Driver, submit


def test_failed_step_ends_its_rows_and_the_prompt_it_made_room_for_runs(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tiny, parallel=1, preemption="lowest-priority")
    driver.tick(submit("low", [1, 2, 3], 30, lane=Lane.LOW))
    for _ in range(3):
        driver.tick()

    def broken() -> Iterator[None]:
        raise RuntimeError("[malloc] Unable to allocate 99 bytes.")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(driver.worker._scheduler._decoder, "settle", broken)
        driver.tick(submit("high", [4, 5], 3, lane=Lane.HIGH))
    driver.run()
    assert driver.failure("low").error.code == "generation_failed"
    assert len(driver.tokens("high")) == 3


def test_row_whose_last_token_cannot_be_read_is_told_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has left its place by then; nobody else would tell its client."""
    driver = Driver(tiny)
    driver.tick(submit("short", [1, 2, 3], 4), submit("long", [4, 5, 6, 7], 30))
    while len(driver.tokens("short")) < 3:
        driver.tick()

    def broken(rows: object, likeliest: object) -> None:
        raise RuntimeError("[malloc] Unable to allocate 99 bytes.")

    with monkeypatch.context() as patch:
        patch.setattr(driver.worker._scheduler._decoder._language, "read", broken)
        driver.tick()
    driver.run(submit("next", [8, 9], 3))
    assert driver.failure("short").error.code == "generation_failed"
    assert driver.failure("long").error.code == "generation_failed"
    assert len(driver.tokens("next")) == 3
