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
