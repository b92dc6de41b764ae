"""The prompt cache of a worker, as its options and its model make it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlxcel.engine.cache.build import FLOOR, Ground
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.weights.card import memory_card
from tests.engine.cache.warm_rows import PROMPT, TAG, keeping, reused, stats
from tests.engine.driver import Driver, submit


@pytest.mark.parametrize(
    ("window", "train_window", "context"),
    [(256, 512, 256), (0, 512, 512), (0, 0, FLOOR)],
    ids=["window-of-a-slot", "as-trained", "unknown"],
)
def test_longest_sequence_is_that_of_a_slot(
    tiny: Path, window: int, train_window: int, context: int
) -> None:
    model = replace(Driver(tiny).model, train_window=train_window)
    ground = Ground(
        model=model,
        name="tiny",
        card=memory_card(model),
        plan=KVPlan(),
        window=window,
        left_bytes=None,
        keeps_columns=True,
    )
    assert ground.footprint.context == context
    assert ground.footprint.token_bytes == 2 * 2 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        pytest.param({}, 1024, id="default"),
        pytest.param({"prompt": {"max_entries": 3}}, 3, id="entries"),
        pytest.param({"apc": {"num_blocks": 2}}, 2, id="blocks"),
        pytest.param({"apc": {"num_blocks": 5}, "prompt": {"max_entries": 3}}, 3, id="both"),
    ],
)
def test_entries_are_bounded_by_both_options(
    tiny: Path, cache: dict[str, Any], expected: int
) -> None:
    driver = Driver(tiny, cache=cache)
    assert stats(driver)["max_entries"] == expected


def test_conversations_are_adopted_to_the_token(tiny: Path) -> None:
    driver = Driver(tiny, cache={"conversations": {"enabled": True}})
    driver.run(submit("one", PROMPT, 2, cache=TAG), submit("two", [*PROMPT[:77], 3], 2, cache=TAG))
    assert reused(driver, "two") == 77


def test_no_room_is_no_cache(tiny: Path) -> None:
    driver = Driver(tiny, cache={"prompt": {"ram_mib": 0}})
    driver.run(submit("one", PROMPT, 2, cache=TAG))
    assert not driver.worker._cache.is_on
    assert driver.finish("one").usage.cached_tokens is None


def test_without_apc_only_whole_entries_are_adopted(tiny: Path) -> None:
    driver = Driver(tiny, cache={"apc": {"enabled": False}})
    driver.run(submit("one", PROMPT[:50], 2, cache=TAG))
    driver.run(submit("part", [*PROMPT[:40], 99, 98], 2, cache=TAG))
    driver.run(submit("two", PROMPT, 2, cache=TAG))
    assert (reused(driver, "part"), reused(driver, "two")) == (0, 49)
    assert keeping(driver).entries > 0
