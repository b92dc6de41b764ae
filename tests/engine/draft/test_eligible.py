"""Which rows are asked for proposals: the table of the contract (speculative, 4)."""

from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher
from msgspec.structs import replace

from mlxcel.core.request import Lane
from mlxcel.core.sampling import AdaptiveP, Dry, DynamicTemperature, Mirostat
from mlxcel.core.steering import Constraint, Thinking
from mlxcel.link.messages import RowFinished
from tests.engine.draft.scripted import Scripted, drafting
from tests.engine.driver import Driver, submit

DRY = Dry(multiplier=1.0, base=1.75, allowed_length=1, window=32)
REGEX = Constraint(grammar=LLMatcher.grammar_from_regex("[a-z]{2,30}"))
THINKING = Thinking(open_ids=(60,), close_ids=(62,), budget=8, is_open=True)
ELIGIBLE: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "top_p": 0.9},
    "bias": {"bias": ((65, 4.0),)},
    "dynamic": {
        "temperature": 1.0,
        "dynamic_temperature": DynamicTemperature(span=0.5, exponent=1.0),
    },
    "thinking budget": {"thinking": THINKING},
    "mirostat that a greedy row ignores": {"mirostat": Mirostat(version=2, rate=0.2, target=3.0)},
}
NOT: dict[str, dict[str, Any]] = {
    "structured": {"constraint": REGEX},
    "logprobs": {"top_logprobs": 0},
    "repetition": {"repetition_penalty": 1.2},
    "frequency": {"frequency_penalty": 0.1},
    "presence": {"presence_penalty": 0.1},
    "dry": {"dry": DRY},
    "mirostat": {"temperature": 1.0, "mirostat": Mirostat(version=2, rate=0.2, target=3.0)},
    "adaptive": {"temperature": 1.0, "adaptive": AdaptiveP(target=0.3, decay=0.8)},
}


@pytest.fixture(scope="module")
def driver(tiny: Path) -> Driver:
    with drafting(lambda: Scripted(lambda heard, count: heard[-count:])):
        return Driver(tiny, parallel=4)


def rounds(driver: Driver, **options: Any) -> int:
    driver.frames.clear()
    driver.run(submit("r", [1, 2, 3], 12, **options))
    (end,) = [event for event in driver.events("r") if isinstance(event, RowFinished)]
    return 0 if end.timings.drafted is None else end.timings.drafted.rounds


@pytest.mark.parametrize("options", ELIGIBLE.values(), ids=ELIGIBLE)
def test_asked(driver: Driver, options: dict[str, Any]) -> None:
    assert rounds(driver, **options)


@pytest.mark.parametrize("options", NOT.values(), ids=NOT)
def test_not_asked(driver: Driver, options: dict[str, Any]) -> None:
    assert not rounds(driver, **options)


def test_a_row_that_was_driven_out_goes_on_without(tiny: Path) -> None:
    with drafting(lambda: Scripted(lambda heard, count: heard[-count:])) as made:
        driver = Driver(tiny, parallel=1, preemption="longest-first")
        low = submit("low", [1, 2, 3], 40, lane=Lane.LOW)
        driver.tick(low)
        for _ in range(3):
            driver.tick()
        before = driver.stats.draft_rounds
        driver.run(replace(submit("high", [4], 2, temperature=1.0), lane=Lane.HIGH))
    assert driver.stats.preemptions == 1
    assert before
    high = next(e for e in driver.events("high") if isinstance(e, RowFinished)).timings.drafted
    assert driver.stats.draft_rounds == before + (0 if high is None else high.rounds)
    assert len(made) == 2
    driver.close()
