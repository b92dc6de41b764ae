"""The tick decision: its table, and the bound on first tokens as a property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.request import Lane
from mlxcel.engine.schedule.decide import Action, View, decide, next_lost

HIGH = {"active": 4, "waiting": 1, "head_lane": Lane.HIGH, "may_preempt": True}


def view(**changes: int | bool) -> View:
    facts = {
        "is_parked": False, "active": 0, "is_flying": False, "waiting": 0, "slots": 4,
        "interval": 16, "lost": 0,
    }  # fmt: skip
    return View(**(facts | changes))


@pytest.mark.parametrize(
    ("state", "action"),
    [
        pytest.param(view(), Action.IDLE, id="nothing-to-do"),
        pytest.param(view(waiting=1), Action.PREFILL, id="first-request"),
        pytest.param(view(active=1, waiting=1), Action.PREFILL, id="room-for-one-more"),
        pytest.param(view(active=4, waiting=1), Action.DECODE, id="all-slots-taken"),
        pytest.param(view(active=2), Action.DECODE, id="rows-only"),
        pytest.param(view(is_flying=True), Action.DECODE, id="last-token-in-flight"),
        pytest.param(
            view(is_parked=True, is_flying=True), Action.DECODE, id="flight-lands-before-the-chunk"
        ),
        pytest.param(view(is_parked=True), Action.PREFILL, id="parked-alone"),
        pytest.param(view(is_parked=True, active=1), Action.DECODE, id="parked-waits"),
        pytest.param(view(is_parked=True, active=1, lost=15), Action.DECODE, id="one-to-go"),
        pytest.param(view(is_parked=True, active=1, lost=16), Action.PREFILL, id="granted"),
        pytest.param(
            view(is_parked=True, active=1, lost=99, interval=0), Action.DECODE, id="never-granted"
        ),
        pytest.param(view(is_parked=True, active=1, waiting=3), Action.DECODE, id="none-admitted"),
        pytest.param(view(is_parked=True, active=1, is_mixed=True), Action.MIXED, id="mixed"),
        pytest.param(view(is_parked=True, is_mixed=True), Action.PREFILL, id="mixed-with-nobody"),
        pytest.param(
            view(is_parked=True, active=1, is_mixed=True, interval=0), Action.MIXED, id="mixed-0"
        ),
        pytest.param(view(active=2, is_mixed=True), Action.DECODE, id="nothing-to-mix"),
        pytest.param(view(**HIGH, lowest_lane=Lane.NORMAL), Action.PREFILL, id="preempts"),
        pytest.param(view(**HIGH, lowest_lane=Lane.HIGH), Action.DECODE, id="equal-does-not"),
        pytest.param(
            view(**HIGH | {"may_preempt": False}, lowest_lane=Lane.LOW), Action.DECODE, id="off"
        ),
        pytest.param(
            view(**HIGH | {"waiting": 0}, lowest_lane=Lane.LOW), Action.DECODE, id="nobody-waits"
        ),
    ],
)
def test_action_for_state(state: View, action: Action) -> None:
    assert decide(state) is action


@pytest.mark.parametrize(
    ("state", "action", "lost"),
    [
        pytest.param(view(lost=3), Action.DECODE, 0, id="nothing-parked"),
        pytest.param(view(is_parked=True, lost=3), Action.PREFILL, 0, id="granted"),
        pytest.param(view(is_parked=True, active=1, lost=3), Action.DECODE, 4, id="lost-again"),
        pytest.param(view(is_parked=True, active=1, lost=3), Action.MIXED, 0, id="mixed"),
        pytest.param(view(is_parked=True, lost=3), Action.IDLE, 3, id="idle-leaves-it"),
    ],
)
def test_count_of_lost_ticks(state: View, action: Action, lost: int) -> None:
    assert next_lost(state, action) == lost


@given(
    active=st.integers(0, 4), lost=st.integers(0, 99), interval=st.integers(0, 16),
    waiting=st.integers(0, 9), is_flying=st.booleans(),
)  # fmt: skip
def test_mixed_step_never_lets_a_parked_prompt_wait(**facts: int) -> None:
    action = decide(view(is_parked=True, is_mixed=True, **facts))
    assert action is not Action.DECODE


@given(active=st.integers(1, 4), lost=st.integers(0, 10_000))
def test_interval_0_waits_until_the_batch_is_empty(active: int, lost: int) -> None:
    assert decide(view(is_parked=True, active=active, interval=0, lost=lost)) is Action.DECODE
    assert decide(view(is_parked=True, interval=0, lost=lost)) is Action.PREFILL


@given(chunks=st.integers(1, 12), interval=st.sampled_from([1, 4, 16]), active=st.integers(1, 4))
def test_first_token_within_bound_however_busy_decoding_is(
    chunks: int, interval: int, active: int
) -> None:
    state = view(is_parked=True, active=active, interval=interval)
    left, ticks = chunks, 0
    while left:
        action = decide(state)
        lost = next_lost(state, action)
        left -= action is Action.PREFILL
        state = view(is_parked=True, active=active, interval=interval, lost=lost)
        ticks += 1
    assert ticks <= chunks * (interval + 1)
