"""Who makes room for a more important prompt."""

import pytest

from mlxcel.core.request import Lane
from mlxcel.engine.schedule.victim import Policy, victim_of
from mlxcel.engine.sequence import Sequence
from tests.engine.schedule.waiting import prompt


def row(name: str, lane: Lane, said: int) -> Sequence:
    (found,) = prompt(name, lane=lane).rows
    found.output = [0] * said
    return found


ROWS = [
    row("high-long", Lane.HIGH, 90),
    row("normal-long", Lane.NORMAL, 50),
    row("low-short", Lane.LOW, 3),
    row("low-longer", Lane.LOW, 7),
]


@pytest.mark.parametrize(
    ("policy", "lane", "victim"),
    [
        pytest.param(Policy.LONGEST_FIRST, Lane.HIGH, "normal-long", id="longest"),
        pytest.param(Policy.LOWEST_PRIORITY, Lane.HIGH, "low-longer", id="lowest"),
        pytest.param(Policy.LONGEST_FIRST, Lane.NORMAL, "low-longer", id="longest-below-normal"),
        pytest.param(Policy.LOWEST_PRIORITY, Lane.LOW, None, id="nobody-below-low"),
    ],
)
def test_victim(policy: Policy, lane: Lane, victim: str | None) -> None:
    found = victim_of(ROWS, policy, lane)
    assert (found and found.request.id) == victim
