"""How many tokens may be proposed: the traces of the contract, and what may never happen."""

from hypothesis import given
from hypothesis import strategies as st

from mlxcel.engine.draft.governor import LONGEST_PAUSE, Gated, Governor, Graded


def rounds(governor: Governor, accepted: list[int]) -> list[tuple[int, int] | str]:
    """(budget, accepted) of each round, and how many asks it rested before."""
    trace: list[tuple[int, int] | str] = []
    for count in accepted:
        rests = 0
        while not governor.budget:
            governor.passed()
            rests += 1
        if rests:
            trace.append(f"rests {rests}")
        trace.append((governor.budget, count))
        governor.took(count)
    return trace


def test_the_graded_trace() -> None:
    expected = [
        (7, 7),
        (7, 0),
        (7, 0),
        (6, 0),
        "rests 4",
        (4, 0),
        (3, 0),
        (2, 0),
        "rests 8",
        (2, 2),
    ]
    assert rounds(Graded(7), [7, 0, 0, 0, 0, 0, 0, 2]) == expected


def test_pauses_grow_and_begin_anew() -> None:
    trace = rounds(Graded(7), [0] * 16 + [1, 0, 0, 0, 0])
    pauses = [entry for entry in trace if isinstance(entry, str)]
    assert pauses == ["rests 4", "rests 8", "rests 16", "rests 32", "rests 32", "rests 4"]


def test_gated_widens_when_it_pays() -> None:
    gated = Gated(7)
    assert gated.budget == 2
    gated.took(2)
    assert gated.budget == 7  # (1 + 2) / 2
    gated.took(0)
    assert gated.budget == 2


def test_gated_stops_after_three_misses_and_comes_back_on_probation() -> None:
    gated = Gated(7)
    for _ in range(3):
        assert not gated.watches
        assert gated.budget
        gated.took(0)
    assert (gated.budget, gated.watches) == (0, True)
    for is_right in (True, False, True):
        assert gated.watches
        gated.came_true(is_right)
    assert (gated.budget, gated.watches) == (2, False)
    gated.took(0)
    assert gated.watches  # one miss is enough on probation
    gated.came_true(True)
    gated.came_true(True)
    gated.took(1)
    gated.took(0)
    gated.took(0)
    assert not gated.watches  # it is over with the first token that came true


def test_a_miss_that_is_made_good_does_not_count() -> None:
    gated = Gated(7)
    for accepted in (0, 0, 1, 0, 0):
        gated.took(accepted)
    assert not gated.watches


@given(most=st.integers(1, 64), moves=st.lists(st.integers(-2, 64), max_size=80))
def test_budgets_stay_in_bounds_and_rests_end(most: int, moves: list[int]) -> None:
    for governor in (Graded(most), Gated(most)):
        for move in moves:
            assert 0 <= governor.budget <= most
            if governor.budget and move >= 0:
                governor.took(min(move, governor.budget))
            elif governor.watches:
                governor.came_true(move == -1)
            else:
                governor.passed()
        for _ in range(LONGEST_PAUSE):
            governor.came_true(True)
            governor.passed()
        assert governor.budget
