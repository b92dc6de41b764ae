"""Reads that nobody waits for, and disks that do not answer: no request hangs, nor does the end."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from mlxcel.engine.cache.disk import reader as reader_module
from mlxcel.engine.cache.disk.reader import PATIENCE_S
from mlxcel.engine.cache.disk.tier import Unsound
from mlxcel.engine.cache.spill import Fetch
from mlxcel.engine.fetching import Fetching, FetchQueue
from mlxcel.engine.request import Request
from tests.engine.cache.disk_runs import IDENTITY, LONG_S, Clock
from tests.engine.cache.disk_runs import wait_for as wait
from tests.engine.cache.spill_shop import ONE, Shop, after_a_restart, clogged, files


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


def test_request_does_not_wait_for_ever(
    tmp_path: Path, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.write(ONE)
    shop.keeping.fit(0)
    release = clogged(files(tmp_path)[0])
    fetch = shop.fetch(ONE)
    assert fetch is not None
    assert not fetch.is_over(shop.clock())
    shop.clock.now += PATIENCE_S
    assert fetch.is_over(shop.clock())
    assert shop.keeping.fetched(fetch) == 0
    assert f"within {PATIENCE_S:g} s" in caplog.text
    release()


def test_nothing_is_asked_of_a_disk_that_does_not_answer(tmp_path: Path) -> None:
    clock = Clock()
    made = reader_module.Reader(tmp_path, _checker(), lambda *_: None, clock=clock)
    (tmp_path / "a").touch()
    release = clogged(tmp_path / "a")
    answer = made.read(["a"])
    wait(lambda: made._began_s is not None)
    assert not made.is_stuck
    clock.now += PATIENCE_S + 1
    assert made.is_stuck
    release()
    assert isinstance(answer.result(LONG_S)[0], Unsound)
    assert not made.is_stuck
    made.close()


def _checker() -> reader_module.Checker:
    return reader_module.Checker(IDENTITY, "sha256")


def test_stuck_disk_is_a_miss_at_once(tmp_path: Path, shop: Shop) -> None:
    shop.write(ONE)
    shop.keeping.fit(0)
    release = clogged(files(tmp_path)[0])
    shop.tier._reader._clock = clock = Clock()
    first = shop.fetch(ONE)
    assert first is not None
    wait(lambda: shop.tier._reader._began_s is not None)
    clock.now += PATIENCE_S + 1
    assert shop.fetch(ONE) is None
    release()
    first.read.result(LONG_S)


def test_what_nobody_waits_for_is_not_read(tmp_path: Path, shop: Shop) -> None:
    shop.write(ONE)
    (tmp_path / "a").touch()
    release = clogged(tmp_path / "a")
    blocked = shop.tier.read(["a"])
    wait(lambda: shop.tier._reader._began_s is not None)
    shop.keeping.fit(0)
    fetch = shop.fetch(ONE)
    assert fetch is not None
    queue = FetchQueue()
    queue.add(_waiting(fetch))
    queue.cancel("unknown")
    queue.cancel("r")
    assert len(queue) == 0
    release()
    blocked.result(LONG_S)
    last = shop.tier.read(["b"]).result(LONG_S)
    assert isinstance(last[0], Unsound)
    assert shop.tier.stats()["hits"] == 0


def _waiting(fetch: Fetch) -> Fetching:
    request = cast(Request, SimpleNamespace(id="r"))
    return Fetching(request=request, matchers=[], fetch=fetch)


def test_queue_gives_back_what_was_waited_for_long_enough(tmp_path: Path, shop: Shop) -> None:
    shop.write(ONE)
    shop.keeping.fit(0)
    release = clogged(files(tmp_path)[0])
    fetch = shop.fetch(ONE)
    assert fetch is not None
    wait(lambda: shop.tier._reader._began_s is not None)
    queue = FetchQueue(clock=shop.clock)
    queue.add(one := _waiting(fetch))
    assert list(queue.done()) == []
    shop.clock.now += PATIENCE_S
    assert list(queue.done()) == [one]
    fetch.give_up()
    release()
    assert isinstance(shop.tier.read(["b"]).result(LONG_S)[0], Unsound)


def test_prefix_that_many_want_at_once_is_read_once(tmp_path: Path, shop: Shop) -> None:
    shop.write(ONE)
    (tmp_path / "a").touch()
    release = clogged(tmp_path / "a")
    shop.tier.read(["a"])
    wait(lambda: shop.tier._reader._began_s is not None)
    shop.keeping.fit(0)
    fetches = [shop.fetch(ONE) for _ in range(5)]
    release()
    read = [fetch.read.result(LONG_S)[0] for fetch in fetches if fetch is not None]
    assert len(read) == 5
    assert len({id(one) for one in read}) == 1
    assert [shop.keeping.fetched(f) for f in fetches if f is not None] == [len(ONE), 0, 0, 0, 0]


def test_error_nobody_thought_of_is_an_answer_as_well(
    tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(ONE)
    shop.keeping.fit(0)

    def fails(*_: object) -> None:
        raise KeyError("odd")

    with monkeypatch.context() as patch:
        patch.setattr(reader_module, "read", fails)
        assert shop.brought(ONE) == 0
    (path,) = files(tmp_path)
    assert path.exists()
    assert after_a_restart(tmp_path, ONE) == len(ONE)


def test_end_does_not_wait_for_a_disk_that_does_not_answer(tmp_path: Path) -> None:
    made = Shop(tmp_path)
    (tmp_path / "a").touch()
    release = clogged(tmp_path / "a")
    made.tier.read(["a"])
    wait(lambda: made.tier._reader._began_s is not None)
    start = time.monotonic()
    made.close()
    assert time.monotonic() - start < 5
    (stuck,) = (t for t in threading.enumerate() if t.name == "cache-disk-read")
    assert stuck.daemon
    release()
    stuck.join(LONG_S)
