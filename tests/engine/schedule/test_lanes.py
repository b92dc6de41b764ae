"""The queue: three lanes, first in first out inside each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.request import Lane
from mlxcel.engine.schedule.lanes import Lanes
from tests.engine.schedule.waiting import prompt


def taken(lanes: Lanes) -> list[str]:
    return [lanes.pop().request.id for _ in range(len(lanes))]


def test_high_goes_before_normal_before_low() -> None:
    lanes = Lanes()
    for name, lane in [
        ("low", Lane.LOW), ("normal", Lane.NORMAL), ("high", Lane.HIGH), ("normal2", Lane.NORMAL),
    ]:  # fmt: skip
        lanes.push(prompt(name, lane=lane))
    assert taken(lanes) == ["high", "normal", "normal2", "low"]


def test_pushed_front_is_first_of_its_own_lane_only() -> None:
    lanes = Lanes()
    lanes.push(prompt("high", lane=Lane.HIGH))
    lanes.push(prompt("normal"))
    lanes.push_front(prompt("back"))
    assert taken(lanes) == ["high", "back", "normal"]


def test_sweep_drops_what_nobody_waits_for() -> None:
    lanes = Lanes()
    for name in "abc":
        lanes.push(prompt(name))
    lanes.sweep(lambda waiting: waiting.request.id == "b")
    assert taken(lanes) == ["a", "c"]


def test_without_lanes_it_is_one_queue() -> None:
    lanes = Lanes(ignores_lanes=True)
    for name, lane in [("low", Lane.LOW), ("high", Lane.HIGH)]:
        lanes.push(prompt(name, lane=lane))
    assert taken(lanes) == ["low", "high"]


def test_lane_of_the_head_alone_is_offered_for_a_cohort() -> None:
    lanes = Lanes()
    for name, lane in [("n1", Lane.NORMAL), ("h1", Lane.HIGH), ("h2", Lane.HIGH)]:
        lanes.push(prompt(name, lane=lane))
    assert [waiting.request.id for waiting in lanes.lane_of_head()] == ["h1", "h2"]


def test_empty_queue_has_no_head() -> None:
    lanes = Lanes()
    assert lanes.head is None
    assert list(lanes.lane_of_head()) == []
    with pytest.raises(StopIteration):
        lanes.pop()


@given(st.lists(st.sampled_from(list(Lane)), max_size=40))
def test_order_is_by_lane_then_by_arrival(arrivals: list[Lane]) -> None:
    lanes = Lanes()
    for i, lane in enumerate(arrivals):
        lanes.push(prompt(str(i), lane=lane))
    expected = sorted(range(len(arrivals)), key=lambda i: (arrivals[i], i))
    assert taken(lanes) == [str(i) for i in expected]
