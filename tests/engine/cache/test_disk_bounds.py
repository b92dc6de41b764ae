"""Bytes, age and the free space of the disk are bounds that hold, and recency decides who goes."""

from pathlib import Path

import pytest

from mlxcel.engine.cache.disk.guard import RETRY_S
from mlxcel.engine.cache.disk.tier import DiskTier, Gone, Loss, NotWritten, Refusal, Run, Written
from mlxcel.engine.cache.disk.writer import FRESH_S, SWEEP_S
from tests.engine.cache.disk_runs import (
    IDENTITY,
    LONG_S,
    Clock,
    drained,
    layers,
    put,
    rules,
    run,
    silent,
    stored,
    tier,
    wait_for,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def size(tmp_path: Path) -> int:
    """Bytes of the file of `run(5)`; of those that begin elsewhere too, give or take a few."""
    with tier(tmp_path / "sized") as made:
        return (tmp_path / "sized" / put(made, run(5, first=100))).stat().st_size


def three(made: DiskTier, clock: Clock) -> list[Run]:
    """Written one second after the other."""
    runs = [run(5, first=first) for first in (100, 200, 300)]
    for one in runs:
        put(made, one)
        clock.now += 1
    list(made.events())
    return runs


def test_folder_never_holds_more_than_its_capacity(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "runs"
    capacity = int(size * 3.5)
    with tier(folder, capacity_bytes=capacity) as made:
        for first in range(100, 120):
            put(made, run(5, first=first))
            assert sum(path.stat().st_size for path in folder.iterdir()) <= capacity
            assert made.stats()["bytes"] <= capacity
        assert made.stats()["files"] == 3
        assert made.stats()["evictions"] == 17
    assert set(stored(folder)) == {run(5, first=first) for first in (117, 118, 119)}


def test_longest_unused_goes_first(tmp_path: Path, clock: Clock, size: int) -> None:
    folder = tmp_path / "runs"
    with tier(folder, clock=clock, capacity_bytes=int(size * 3.5)) as made:
        first, second, third = three(made, clock)
        made.used([made.write(first, layers(5))])
        list(made.events())
        clock.now += 1
        fourth = run(5, first=400)
        name = made.write(fourth, layers(5))
        gone, written = drained(made)
        assert (gone.reason, written) == (Loss.ROOM, Written(file=name, run=fourth))
    assert set(stored(folder)) == {first, third, fourth}
    assert second not in stored(folder)


def test_prefix_outlives_what_stands_on_it(tmp_path: Path, clock: Clock) -> None:
    with tier(tmp_path, clock=clock, capacity_bytes=25_000) as made:
        runs = [run(20, start=start) for start in (0, 20, 40)]
        names = [put(made, one) for one in runs]
        clock.now += 1
        made.used(reversed(names))
        clock.now += 1
        put(made, run(50, first=900))
        assert made.stats()["evictions"] == 1
    assert set(stored(tmp_path)) == {*runs[:2], run(50, first=900)}


def test_run_larger_than_the_capacity_evicts_nobody(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "runs"
    with tier(folder, capacity_bytes=size + 100) as made:
        put(made, run(5, first=100))
        list(made.events())
        made.write(run(15), layers(15))
        (event,) = drained(made)
        assert isinstance(event, NotWritten)
        assert event.reason in (Refusal.TOO_LARGE, Refusal.QUEUE_FULL)
        put(made, run(6, first=100))
    assert len(stored(folder)) == 1


def test_lower_capacity_is_met_at_the_start(tmp_path: Path, clock: Clock, size: int) -> None:
    folder = tmp_path / "runs"
    with tier(folder, clock=clock) as made:
        _, _, third = three(made, clock)
    with tier(folder, clock=clock, capacity_bytes=size + 100) as made:
        assert made.stats()["evictions"] == 2
        assert [event.reason for event in made.events()] == [Loss.ROOM] * 2
    assert stored(folder) == [third]


def test_recency_survives_a_restart(tmp_path: Path, clock: Clock, size: int) -> None:
    folder = tmp_path / "runs"
    with tier(folder, clock=clock) as made:
        first, second, third = three(made, clock)
        made.used([made.write(first, layers(5))])
    clock.now += 1
    with tier(folder, clock=clock, capacity_bytes=int(size * 3.5)) as made:
        put(made, run(5, first=400))
    assert set(stored(folder)) == {first, third, run(5, first=400)}
    assert second not in stored(folder)


def test_recency_is_on_disk_while_the_server_runs(tmp_path: Path, clock: Clock) -> None:
    """A crash loses no more than what is being done."""
    with tier(tmp_path, clock=clock) as made:
        name = put(made, run(5))
        clock.now += 77
        made.used([name])
        wait_for(lambda: (tmp_path / name).stat().st_mtime == clock.now)


def test_file_unused_for_too_long_goes_while_the_server_runs(tmp_path: Path, clock: Clock) -> None:
    with tier(tmp_path, clock=clock, ttl_s=1000) as made:
        old, kept = put(made, run(5)), put(made, run(6))
        clock.now += 999
        made.used([kept])
        clock.now += 2
        list(made.events())
        put(made, run(7))
        wait_for(lambda: made.stats()["expired"] == 1)
        assert Gone(file=old, reason=Loss.AGE) in list(made.events())
    assert set(stored(tmp_path)) == {run(6), run(7)}


@pytest.mark.parametrize(("ttl_s", "left"), [(1000, 1), (0, 2)], ids=["bounded", "for-ever"])
def test_file_unused_for_too_long_goes_at_the_start(
    tmp_path: Path, clock: Clock, ttl_s: float, left: int
) -> None:
    with tier(tmp_path, clock=clock) as made:
        put(made, run(5))
        clock.now += 900
        put(made, run(6))
    clock.now += 900
    made = DiskTier(rules(tmp_path, ttl_s=ttl_s), IDENTITY, clock=clock)
    found = [one.run for one in made.open(silent)]
    made.close(LONG_S)
    assert len(found) == left
    assert made.stats()["expired"] == 2 - left
    assert len(list(tmp_path.iterdir())) == left


class Disk:
    """A disk of some size that others use as well."""

    def __init__(self, total: int) -> None:
        self.total, self.others = total, 0

    def __call__(self, folder: Path) -> int:
        ours = sum(path.stat().st_size for path in folder.iterdir())
        return self.total - self.others - ours


def test_free_space_is_kept_by_evicting_our_own(tmp_path: Path, clock: Clock, size: int) -> None:
    folder = tmp_path / "runs"
    disk = Disk(int(size * 3.5) + 5000)
    with tier(folder, clock=clock, min_free_bytes=5000, free_bytes=disk) as made:
        for first in range(100, 110):
            put(made, run(5, first=first))
            clock.now += 1
            assert disk(folder) >= 5000
        assert (made.stats()["files"], made.stats()["evictions"]) == (3, 7)
    assert set(stored(folder)) == {run(5, first=first) for first in (107, 108, 109)}


def test_disk_that_others_fill_stops_writing_until_it_is_free_again(
    tmp_path: Path, clock: Clock, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "runs"
    disk = Disk(1_000_000)
    with (
        caplog.at_level("INFO"),
        tier(folder, clock=clock, min_free_bytes=5000, free_bytes=disk) as made,
    ):
        kept = three(made, clock)
        caplog.clear()
        disk.others = 1_000_000
        for first in range(400, 405):
            made.write(run(5, first=first), layers(5))
        assert [event.reason for event in drained(made)] == [Refusal.NO_SPACE] * 5
        assert made.stats()["is_writable"] is False
        assert made.stats()["files"] == 3
        (line,) = caplog.messages
        assert "min_free_bytes=5000" in line
        disk.others = 0
        clock.now += RETRY_S - 1
        made.write(run(5, first=500), layers(5))
        assert [event.reason for event in drained(made)] == [Refusal.NO_SPACE]
        clock.now += 1
        put(made, run(5, first=600))
        assert made.stats()["is_writable"] is True
        assert "written again" in caplog.messages[-1]
        assert len(caplog.messages) == 2
    assert set(stored(folder)) == {*kept, run(5, first=600)}


def test_two_servers_share_the_capacity_and_respect_each_others_use(
    tmp_path: Path, clock: Clock, size: int
) -> None:
    folder = tmp_path / "runs"
    capacity = int(size * 3.5)
    with tier(folder, clock=clock, capacity_bytes=capacity) as one:
        first, second, third = three(one, clock)
        with tier(folder, clock=clock, capacity_bytes=capacity) as other:
            other.used([other.write(first, layers(5))])
            name = other.write(first, layers(5))
            wait_for(lambda: (folder / name).stat().st_mtime == clock.now)
            clock.now += FRESH_S
            put(one, run(5, first=400))
            clock.now += SWEEP_S
            other.used([])
            lost: list[Gone] = []
            wait_for(lambda: lost.extend(e for e in other.events() if isinstance(e, Gone)) or lost)
            assert [event.reason for event in lost] == [Loss.VANISHED]
            assert other.stats()["files"] == 3
    assert set(stored(folder)) == {first, third, run(5, first=400)}
    assert second not in stored(folder)


def test_file_that_vanished_is_noticed_also_when_it_was_just_used(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with tier(tmp_path, clock=clock) as made:
        name = put(made, run(5))
        list(made.events())
        (tmp_path / name).unlink()
        clock.now += SWEEP_S
        made.used([name])
        wait_for(lambda: Gone(file=name, reason=Loss.VANISHED) in list(made.events()))
        put(made, run(6))
    assert caplog.messages == []
    assert stored(tmp_path) == [run(6)]
