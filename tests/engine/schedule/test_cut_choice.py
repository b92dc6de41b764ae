"""One choice that nobody reads any more ends; its siblings do not notice."""

from pathlib import Path

import pytest

from mlxcel.core.events import FinishReason
from mlxcel.link.messages import Cancel
from tests.engine.driver import Driver, submit


@pytest.mark.parametrize("cut", [0, 2], ids=["decoding", "waiting-for-a-place"])
def test_cut_choice_gives_its_place_back(tiny: Path, cut: int) -> None:
    request = submit("n", [1, 2, 3, 4], 20, choices=3, temperature=1.0, seed=5)
    driver, whole = Driver(tiny, parallel=2), Driver(tiny)
    driver.tick(request)
    for _ in range(4):
        driver.tick()
    driver.tick(Cancel(id="n", choice=cut))
    said = len(driver.tokens("n", cut))
    driver.run()
    whole.run(request)
    assert len(driver.tokens("n", cut)) == said < 20
    assert driver.reason("n", cut) is FinishReason.STOP
    for choice in {0, 1, 2} - {cut}:
        assert driver.tokens("n", choice) == whole.tokens("n", choice)
    assert driver.finish("n").usage.completion_tokens == 40 + said
    assert driver.stats.active == driver.stats.waiting == driver.stats.kv_blocks == 0


def test_choice_that_has_ended_or_never_was_is_ignored(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.tick(submit("n", [1, 2, 3], 5, choices=2))
    driver.run(Cancel(id="n", choice=7), Cancel(id="gone", choice=0))
    assert driver.finish("n").usage.completion_tokens == 10
