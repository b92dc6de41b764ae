"""Counters that outlive the worker that counts."""

from mlxcel.metrics.steady import Steady


def test_what_is_counted_grows_with_its_worker() -> None:
    steady = Steady()
    assert steady["steps"] == 0
    steady.see(0, {"steps": 3, "rows": 1})
    steady.see(0, {"steps": 5, "rows": 1})
    assert (steady["steps"], steady["rows"]) == (5, 1)


def test_a_new_life_goes_on_from_the_last_even_when_it_has_counted_more() -> None:
    steady = Steady()
    steady.see(0, {"steps": 5})
    steady.see(1, {"steps": 9})
    assert steady["steps"] == 14


def test_a_worker_that_reads_as_zeros_before_its_next_life_is_not_counted_twice() -> None:
    steady = Steady()
    for life, steps in ((0, 5), (0, 0), (1, 0), (1, 2), (2, 0)):
        steady.see(life, {"steps": steps})
    assert steady["steps"] == 7
