"""Rounds are held against what they cost: the estimates, and what rows of an engine then do."""

from pathlib import Path

import pytest

from mlxcel.engine.draft.prices import (
    ENOUGH,
    FIRST_REST,
    LONGEST_REST,
    Prices,
    Prospects,
    expected,
    worthwhile,
)
from tests.engine.draft.scripted import Scripted, drafting
from tests.engine.driver import Driver, submit

LENGTH = 100


def slope(cost: float) -> Prices:
    """Each position beyond the first costs so many plain steps; a plain step takes 10 ms."""
    prices = Prices()
    for _ in range(ENOUGH):
        for width in (1, 6):
            for rows in (1, 2):
                prices.lasted(10 * (1 + cost * (width - 1)), rows, width)
    return prices


class Known(Prices):
    """They do not change, however long steps take here."""

    def __init__(self, cost: float) -> None:
        super().__init__()
        self._ms = slope(cost)._ms

    def lasted(self, ms: float, rows: int, width: int) -> None: ...


def test_prices_are_medians_in_plain_steps() -> None:
    prices = Prices()
    assert prices.of(1) is None
    assert not prices.wants_plain(1)
    for ms in (20.0, 900.0):
        prices.lasted(ms, 1, 3)
    assert prices.wants_plain(1)
    assert prices.of(1) is None
    for ms in (10.0, 0.1, 11.0):
        prices.lasted(ms, 1, 1)
    assert not prices.wants_plain(1)
    price = prices.of(1)
    assert price is not None
    # What lies between is interpolated, what lies beyond costs what the widest does.
    assert [price(width) for width in (1, 2, 3, 8)] == [1.0, 1.5, 2.0, 2.0]
    assert prices.of(2) is None  # other batches are measured by themselves


def test_old_steps_are_forgotten() -> None:
    prices = slope(1.0)
    for _ in range(20):
        prices.lasted(15.0, 1, 6)
    price = prices.of(1)
    assert price is not None
    assert price(6) == 1.5


@pytest.mark.parametrize(
    ("rates", "most", "cost", "count"),
    [
        pytest.param([1.0], [7], 0.5, 7, id="all-come-true"),
        pytest.param([0.1], [7], 0.5, 0, id="hardly-any"),
        pytest.param([0.5], [7], 0.15, 2, id="a-few"),  # 1.75 / 1.3 > 1.5 / 1.15, 1.875 / 1.45
        pytest.param([0.5], [7], 0.0, 7, id="for-nothing"),
        pytest.param([0.9, 0.0], [7, 7], 0.5, 0, id="one-for-two-is-not-enough"),
        pytest.param([0.9, 0.0], [7, 0], 0.2, 5, id="a-row-that-proposes-nothing"),
        pytest.param([1.0, 1.0], [2, 5], 0.1, 5, id="each-to-its-own-limit"),
    ],
)
def test_as_many_as_are_worth_it(
    rates: list[float], most: list[int], cost: float, count: int
) -> None:
    price = lambda width: 1 + cost * (width - 1)  # noqa: E731
    assert worthwhile(rates, most, price) == count
    assert worthwhile(rates, most, price, least=1) == max(1, count)


def test_expected_is_the_sum_of_powers() -> None:
    assert expected(0.5, 3) == pytest.approx(0.5 + 0.25 + 0.125)
    assert (expected(1.0, 3), expected(0.0, 3), expected(0.5, 0)) == (3.0, 0.0, 0.0)


def test_odds_follow_what_came_true() -> None:
    prospects, misses, hits = Prospects(), [], []
    for _ in range(6):
        prospects.took(7, 0)
        misses.append(prospects.rate)
    assert misses == sorted(misses, reverse=True)
    assert misses[-1] < 0.2
    for _ in range(6):
        prospects.took(7, 7)
        hits.append(prospects.rate)
    assert hits == sorted(hits)
    assert hits[-1] > 0.95
    prospects.took(7, 3)  # the rest was not tested
    assert prospects.rate > 0.9


def test_rests_grow_while_nothing_comes_true() -> None:
    prospects, rests = Prospects(), []
    for accepted in (0, 0, 0, 0, 1):
        rests.append(prospects.rest)
        prospects.rested = prospects.rest
        assert prospects.is_rested
        prospects.took(1, accepted)
        assert not prospects.is_rested
    assert rests == [FIRST_REST, 32, 64, LONGEST_REST, LONGEST_REST]
    assert prospects.rest == FIRST_REST


class Run:
    """Two rows with drafters that are right or wrong from a place in the answer on."""

    def __init__(self, tiny: Path, prices: Prices | None, *, is_right_from: int) -> None:
        prompts = ([5, 6, 7], [9, 8, 7, 6])
        asks = [submit(str(n), prompt, LENGTH) for n, prompt in enumerate(prompts)]
        plain = Driver(tiny)
        plain.run(*asks)
        texts = [[*prompt, *plain.tokens(str(n))] for n, prompt in enumerate(prompts)]

        def foresee(heard: list[int], count: int) -> list[int]:
            text = next(text for text in texts if text[: len(heard)] == heard)
            coming = text[len(heard) : len(heard) + count]
            wrong = [token ^ 1 for token in coming]
            return coming if len(heard) >= is_right_from else wrong

        with drafting(lambda: Scripted(foresee), prices=prices):
            driver = Driver(tiny)
        driver.run(*asks)
        assert [driver.tokens(str(n)) for n in range(2)] == [plain.tokens(str(n)) for n in range(2)]
        self.rounds = driver.stats.draft_rounds
        plain.close()
        driver.close()


def test_rows_are_held_back_while_rounds_do_not_pay(tiny: Path) -> None:
    # A few until it is seen, then one after 16 and 32 steps.
    assert 4 <= Run(tiny, Known(0.5), is_right_from=LENGTH * 2).rounds <= 12


def test_rows_that_come_to_pay_are_found_out_by_watching(tiny: Path) -> None:
    """Long before the third rest, of 64 steps, is over."""
    assert Run(tiny, Known(0.3), is_right_from=60).rounds >= 16


def test_without_plain_steps_to_compare_with_some_are_taken(tiny: Path) -> None:
    """Proposals always come true: nothing else would ever show what they save."""
    measured: list[tuple[int, int]] = []

    class Noted(Prices):
        def lasted(self, ms: float, rows: int, width: int) -> None:
            measured.append((rows, width))
            super().lasted(ms, rows, width)

    Run(tiny, Noted(), is_right_from=0)
    assert measured.count((2, 1)) >= ENOUGH
