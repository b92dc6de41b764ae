"""How many prompts share one forward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.schedule.cohort import cohort_of, cohort_rules
from tests.engine.schedule.waiting import prompt


def size(lengths: list[int], *, most: int = 4, free: int = 8, chunk: int = 2048) -> int:
    """With the bound derived from the defaults: 4096 tokens."""
    rules = cohort_rules(most=most, cap=None, chunk=chunk)
    return len(cohort_of([prompt(str(i), n) for i, n in enumerate(lengths)], rules, free=free))


@pytest.mark.parametrize(
    ("lengths", "together"),
    [
        pytest.param([1000, 1000, 1200, 900], 3, id="page-example"),
        pytest.param([2049, 10], 0, id="head-too-long"),
        pytest.param([2048, 2048, 10], 2, id="exactly-the-cap"),
        pytest.param([10, 2049], 0, id="second-longer-than-a-chunk"),
        pytest.param([10, 20, 3000, 5], 2, id="stops-at-the-first-that-does-not-fit"),
        pytest.param([10] * 9, 4, id="at-most-max-batch-prefill"),
        pytest.param([10], 0, id="alone"),
        pytest.param([], 0, id="nobody"),
    ],
)
def test_cohort_size(lengths: list[int], together: int) -> None:
    assert size(lengths) == together


def test_derived_cap() -> None:
    assert cohort_rules(most=4, cap=None, chunk=2048).cap == 4096
    assert cohort_rules(most=4, cap=None, chunk=0).cap == 4096
    assert cohort_rules(most=2, cap=None, chunk=100).cap == 400
    assert cohort_rules(most=2, cap=0, chunk=100).cap == 0


def test_one_at_a_time_where_cohorts_are_off() -> None:
    assert size([10, 10], most=1) == 0


def test_places_bound_the_rows_of_all_choices() -> None:
    waiting = [prompt("a"), prompt("b", choices=3), prompt("c")]
    rules = cohort_rules(most=4, cap=0, chunk=0)
    assert len(cohort_of(waiting, rules, free=4)) == 2
    assert cohort_of(waiting, rules, free=3) == []


def test_other_adapter_scales_split_a_cohort() -> None:
    waiting = [prompt("a", lora=(1.0,)), prompt("b", lora=(1.0,)), prompt("c", lora=(0.5,))]
    rules = cohort_rules(most=4, cap=0, chunk=0)
    assert [one.request.id for one in cohort_of(waiting, rules, free=9)] == ["a", "b"]


def test_prompt_with_kv_goes_alone() -> None:
    begun, cold = prompt("begun"), prompt("cold")
    begun.kv = Prefilled([], (0,))
    rules = cohort_rules(most=4, cap=0, chunk=0)
    assert cohort_of([begun, cold, prompt("x")], rules, free=9) == []


def test_prompt_longer_than_the_kv_window_goes_alone() -> None:
    rules = cohort_rules(most=4, cap=0, chunk=0, window=64)
    assert cohort_of([prompt("a", 64), prompt("b", 65)], rules, free=9) == []
    assert len(cohort_of([prompt("a", 64), prompt("b", 64)], rules, free=9)) == 2


@given(
    lengths=st.lists(st.integers(1, 3000), max_size=12),
    cap=st.integers(0, 9000),
    most=st.integers(1, 8),
    free=st.integers(0, 8),
)
def test_padded_tokens_and_rows_stay_in_bounds(
    lengths: list[int], cap: int, most: int, free: int
) -> None:
    rules = cohort_rules(most=most, cap=cap, chunk=2048)
    waiting = [prompt(str(i), n) for i, n in enumerate(lengths)]
    found = cohort_of(waiting, rules, free=free)
    assert found == waiting[: len(found)]
    assert len(found) <= min(most, free)
    longest = max((len(one.tokens) for one in found), default=0)
    assert not cap or len(found) * longest <= cap
    assert longest <= 2048
