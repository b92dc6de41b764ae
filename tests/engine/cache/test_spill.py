"""Between the store and its files: what nobody can reach any more, what could not be written at
first, runs that are split meanwhile, and a reset in the midst of it."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest

from mlxcel.engine.cache.segment import Segment
from tests.engine.cache.disk_runs import LONG_S, Clock, key
from tests.engine.cache.disk_runs import wait_for as wait
from tests.engine.cache.spill_shop import ONE, PREFIX, TWO, Shop, after_a_restart, files


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


# What is found.


def test_what_was_written_is_found_when_memory_forgot_it_in_idle_time(shop: Shop) -> None:
    """No turn took the news in between: the worker slept."""
    shop.keep(ONE)
    shop.turn()
    wait(lambda: not shop.tier.stats()["queue_bytes"])
    shop.keeping.fit(0)
    assert shop.keeping.entries == 0
    assert shop.brought(ONE) == len(ONE)


def test_what_the_last_turn_kept_is_written_at_the_end(tmp_path: Path) -> None:
    made = Shop(tmp_path)
    made.keep(ONE)
    made.close()
    assert after_a_restart(tmp_path, ONE) == len(ONE)


def test_damaged_run_is_written_anew_when_it_was_read_anew(tmp_path: Path, shop: Shop) -> None:
    shop.write(ONE)
    shop.keeping.fit(0)
    (path,) = files(tmp_path)
    os.truncate(path, 1000)
    assert shop.brought(ONE) == 0
    shop.keep(ONE)
    shop.turn()
    shop.settle()
    assert path.stat().st_size > 1000
    shop.keeping.fit(0)
    assert shop.brought(ONE) == len(ONE)


# What stands on what.


def test_file_whose_beginning_is_gone_is_removed(tmp_path: Path, shop: Shop) -> None:
    shop.write(PREFIX)
    shop.write(ONE)
    shop.write(TWO)
    shop.keeping.fit(0)
    first, *rest = files(tmp_path)
    assert len(rest) == 2
    shop.tier.drop(first.name)

    def is_empty() -> bool:
        shop.turn()
        return not shop.tier.stats()["files"]

    wait(is_empty)
    assert not files(tmp_path)


def test_file_that_cannot_be_read_now_takes_no_other_with_it(tmp_path: Path, shop: Shop) -> None:
    """As on a disk that fails for a while: the next server may have more luck."""
    shop.write(PREFIX)
    shop.write(ONE)
    shop.keeping.fit(0)
    first, second = files(tmp_path)
    aside = tmp_path / "aside"
    first.rename(aside)
    first.mkdir()
    assert shop.brought(ONE) == 0
    shop.turn()
    shop.settle()
    first.rmdir()
    aside.rename(first)
    assert second.exists()
    assert after_a_restart(tmp_path, ONE) == len(ONE)


def test_beginning_that_could_not_be_written_is_written_with_what_stands_on_it(
    tmp_path: Path,
) -> None:
    """Else what is written behind it is lost with a restart."""
    free = [0]
    made = Shop(tmp_path, free_bytes=lambda _: free[0], clock=(clock := Clock()))
    made.write(PREFIX)
    assert not files(tmp_path)
    free[0] = 1 << 40
    clock.now += 60
    made.write(ONE)
    made.write(TWO)
    assert len(files(tmp_path)) == 3
    assert made.tier.stats()["writes"] == 3
    made.close()
    assert after_a_restart(tmp_path, ONE) == len(ONE)
    assert after_a_restart(tmp_path, TWO) == len(TWO)


def test_run_that_is_split_while_it_waits_to_be_written_is_written_once(
    tmp_path: Path, shop: Shop
) -> None:
    shop.keep(ONE)
    shop.turn()
    shop.keep(TWO)
    shop.turn()
    shop.settle()
    assert shop.tier.stats()["writes"] == 2
    assert [path.name.split("-")[1] for path in files(tmp_path)] == ["0", "64"]


def test_run_that_is_split_while_it_is_read_comes_whole(shop: Shop) -> None:
    shop.write(ONE)
    shop.keeping.fit(0)
    fetch = shop.fetch(ONE)
    assert fetch is not None
    shop.keep(TWO)
    shop.turn()
    fetch.read.result(LONG_S)
    assert shop.keeping.fetched(fetch) == len(ONE) - len(PREFIX)
    shop.settle()


def test_files_that_others_make_needless_go_at_the_start(tmp_path: Path) -> None:
    made = Shop(tmp_path)
    made.write(PREFIX)
    made.close()
    (short,) = files(tmp_path)
    aside = tmp_path.parent / "aside"
    short.rename(aside)
    made = Shop(tmp_path)
    made.write(ONE)
    made.close()
    aside.rename(short)
    assert after_a_restart(tmp_path, ONE) == len(ONE)
    assert len(files(tmp_path)) == 1
    assert after_a_restart(tmp_path, PREFIX) >= len(PREFIX)


# Reset.


def test_reset_does_not_write_what_waits(tmp_path: Path, shop: Shop) -> None:
    given = Segment(((mx.ones((1, 8, 20_000, 64)),),), 20_000)
    for first in range(5):
        tokens = tuple(range(first * 20_000, (first + 1) * 20_000))
        shop.keeping.put(key(), tokens, given, "anybody")
    shop.turn()
    assert shop.tier.stats()["queue_bytes"] > 0
    shop.keeping.reset()
    assert shop.tier.stats()["queue_bytes"] == 0
    shop.write(ONE)
    assert len(files(tmp_path)) == 1
    told = shop.tier.stats()
    assert told["writes"] < 6
    assert told["write_failures"] == 0


def test_same_run_after_a_reset_is_written_again(tmp_path: Path) -> None:
    made = Shop(tmp_path)
    made.keep(tuple(range(300, 20_000)))
    made.keep(ONE)
    made.turn()
    made.keeping.reset()
    made.keep(ONE)
    made.turn()
    made.settle()
    made.keeping.fit(0)
    assert made.brought(ONE) == len(ONE)
    made.close()
    assert after_a_restart(tmp_path, ONE) == len(ONE)


def test_reset_while_files_are_read_brings_nothing_back(shop: Shop) -> None:
    shop.write(ONE)
    shop.keeping.fit(0)
    fetch = shop.fetch(ONE)
    assert fetch is not None
    shop.keeping.reset()
    fetch.read.result(LONG_S)
    assert shop.keeping.fetched(fetch) == 0
    assert shop.keeping.nbytes == 0
    shop.settle()


def test_reset_gives_up_the_file_that_is_being_written(tmp_path: Path) -> None:
    """And not the one of the same name that comes after it."""
    begun, go = threading.Event(), threading.Event()

    def free_bytes(_: Path) -> int:
        begun.set()
        go.wait(LONG_S)
        return 1 << 40

    made = Shop(tmp_path, free_bytes=free_bytes)
    made.keep(ONE)
    made.turn()
    begun.wait(LONG_S)
    made.keeping.reset()
    made.keep(ONE)
    made.turn()
    go.set()
    made.settle()
    assert made.tier.stats()["writes"] == 1
    made.keeping.fit(0)
    assert made.brought(ONE) == len(ONE)
    made.close()


def test_disk_that_is_slower_than_the_model_is_passed_over(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mlxcel.engine.cache.spill")
    shop.write(ONE)
    shop.keeping.fit(0)
    shop.worth.computed(1000, 0.001)
    shop.worth.fetched(1000, 1.0)
    assert [shop.fetch(ONE), shop.fetch(ONE)] == [None, None]
    assert shop.spill.stats()["passed_over"] == 2
    assert len([r for r in caplog.records if "passed over" in r.message]) == 1
    for _ in range(10):
        shop.worth.computed(1000, 10.0)
    assert shop.brought(ONE) == len(ONE)


def test_fetch_is_measured(shop: Shop) -> None:
    shop.write(ONE)
    shop.keeping.fit(0)
    shop.worth.computed(1000, 1e-3)
    assert shop.worth.is_fetch(), "unknown yet"
    (fetch := shop.fetch(ONE)).read.result(LONG_S)
    shop.clock.now += 500
    fetch.ended_s[:] = [shop.clock.now]
    shop.keeping.fetched(fetch)
    assert not shop.worth.is_fetch()
