"""How many rows a step has, as the worker counts it."""

from pathlib import Path

import pytest

from mlxcel.core.status import BATCH_EDGES
from mlxcel.engine.report import Report
from tests.engine.driver import Driver, submit


@pytest.mark.parametrize(
    ("rows", "place"),
    [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (128, 7), (129, 8), (1000, 8)],
)
def test_step_is_of_the_first_class_it_fits(rows: int, place: int) -> None:
    report = Report()
    report.stepped(rows)
    frame = report.frame(slots=1)
    assert frame is not None
    sizes = frame.stats.batch_sizes
    assert len(sizes) == len(BATCH_EDGES) + 1
    assert [at for at, count in enumerate(sizes) if count] == [place]
    assert (frame.stats.decode_steps, frame.stats.decode_rows) == (1, rows)


def test_same_numbers_are_told_once() -> None:
    report = Report()
    assert report.frame(slots=1) is not None
    assert report.frame(slots=1) is None
    report.saw(5)
    report.saw(3)
    frame = report.frame(slots=1)
    assert frame is not None
    assert frame.stats.longest == 5
    assert report.frame(slots=1) is None


def test_rows_of_each_step_are_counted(tiny: Path) -> None:
    driver = Driver(tiny, lookahead=False)
    driver.run(*(submit(f"r{n}", [65] * 10, 4 + 2 * n) for n in range(3)))
    stats = driver.stats
    assert stats.decode_rows == stats.decode_tokens == 4 + 6 + 8
    assert stats.decode_steps == 8
    assert stats.batch_sizes == (2, 2, 4, 0, 0, 0, 0, 0, 0)
    assert stats.longest == 10 + 8


def test_longest_row_counts_while_it_is_read(tiny: Path) -> None:
    driver = Driver(tiny, prefill_chunk_size=16)
    driver.tick(submit("a", [65] * 40, 4))
    assert driver.stats.longest == 40
    driver.run()
    assert driver.stats.longest == 44
