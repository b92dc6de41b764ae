"""The tick decision: its table, and the bound on first tokens as a property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.engine.decide import Action, View, decide, next_lost


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
    ],
)
def test_count_of_lost_ticks(state: View, action: Action, lost: int) -> None:
    assert next_lost(state, action) == lost


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
