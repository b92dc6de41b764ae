"""What the log says of a request's proposals, once it is over (speculative, 12)."""

import re
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.sampling import Mirostat, SamplingParams
from mlxcel.engine.draft.diagnosis import Tally, rule_of
from mlxcel.link.messages import Cancel
from tests.engine.draft.test_full_model import DRAFT as FULL_MODEL
from tests.engine.driver import Driver, submit

LOOKUP: dict[str, Any] = {
    "kind": "prompt_lookup",
    "ngram_min": 2,
    "ngram_max": 3,
    "max_draft": 4,
    "max_batch": 2,
    "policy": "graded",
}
ON = {"accept_diag": True}
SAYS = "mlxcel.engine.draft.diagnosis"


def test_the_lines() -> None:
    tally = Tally(rule="match", is_lookup=True)
    assert tally.lines() == []
    tally.passed(is_paused=False)
    tally.took(4, 2)
    tally.took(2, 2)
    tally.took(3, 0)
    tally.passed(is_paused=True)
    tally.came_true(True)
    tally.came_true(False)
    assert tally.lines() == [
        "[Speculative acceptance] rule=match rounds=3 proposed=9 positions_tested=6 accepted=4 "
        "per_position_acceptance=0.667,1.000,0.000 acceptance_rate=0.444 mean_accepted_len=2.333",
        "[Prompt lookup] rounds=5 drafted_rounds=3 paused_rounds=1 proposed=9 accepted=4 "
        "acceptance_rate=0.444 tokens_per_forward=1.800 shadow_confirmations=1",
    ]


@pytest.mark.parametrize(
    ("options", "rejects", "rule"),
    [
        ({}, True, "rejection"),
        ({}, False, "match"),
        ({"temperature": 0.0}, True, "greedy"),
        ({"mirostat": Mirostat(version=2, rate=0.1, target=5.0)}, True, "match"),
    ],
)
def test_which_rule(options: dict[str, Any], rejects: bool, rule: str) -> None:
    assert rule_of(SamplingParams(**options), rejects=rejects) == rule


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == SAYS]


def number(line: str, key: str) -> float:
    found = re.search(rf" {key}=(\S+)", line)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_prompt_lookup(tiny: Path, caplog: pytest.LogCaptureFixture, is_cancelled: bool) -> None:
    caplog.set_level("INFO")
    driver = Driver(tiny, parallel=2, draft=LOOKUP | ON)
    request = submit("r", [1, 2, 3, 4, 5] * 4, 30, bias=((65, 100.0),))
    if is_cancelled:
        driver.tick(request)
        while not driver.stats.draft_rounds:
            driver.tick()
        driver.run(Cancel(id="r"))
    else:
        driver.run(request)
    acceptance, lookup = lines(caplog)
    assert acceptance.startswith("[Speculative acceptance] rule=greedy ")
    assert number(acceptance, "rounds") == number(lookup, "drafted_rounds")
    assert number(acceptance, "rounds") == driver.stats.draft_rounds
    assert number(acceptance, "proposed") == driver.stats.draft_proposed
    assert number(acceptance, "accepted") == driver.stats.draft_accepted
    if not is_cancelled:
        assert number(lookup, "accepted") > 10
        assert number(lookup, "rounds") == driver.stats.decode_steps
        said = number(lookup, "rounds") + number(lookup, "accepted")
        assert said == len(driver.tokens("r"))
    driver.close()


def test_choices_are_told_together(
    tiny: Path, other: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    draft = FULL_MODEL | {"stochastic_accept": True} | ON
    driver = Driver(tiny, parallel=4, draft=draft, drafter=other)
    driver.run(submit("r", [1, 2, 3], 12, temperature=1.0, choices=3))
    (line,) = lines(caplog)
    assert line.startswith("[Speculative acceptance] rule=rejection ")
    assert number(line, "rounds") == driver.stats.draft_rounds
    assert number(line, "accepted") == driver.stats.draft_accepted
    driver.close()


def test_nothing_is_said_without_rounds_or_unasked(
    tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    asked, unasked = (Driver(tiny, draft=LOOKUP | more) for more in (ON, {}))
    asked.run(submit("r", [1, 2, 3], 1))
    unasked.run(submit("r", [1, 2, 3, 4, 5] * 4, 30))
    assert unasked.stats.draft_rounds
    assert not lines(caplog)
    for driver in (asked, unasked):
        driver.close()
