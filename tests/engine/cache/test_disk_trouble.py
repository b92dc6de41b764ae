"""Crashes in mid-write, full and read-only disks, folders that cannot be, and neighbours: each a
clear line in the log and a tier that goes on as far as it can."""

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxcel.engine.cache.disk import files
from mlxcel.engine.cache.disk.guard import RETRY_S, FreeBytes, free_on_disk
from mlxcel.engine.cache.disk.tier import DiskTier, NotWritten, Refusal, Unsound
from tests.engine.cache.disk_runs import (
    IDENTITY,
    LONG_S,
    Clock,
    drained,
    fetched,
    layers,
    put,
    rules,
    run,
    silent,
    stored,
    tier,
    wait_for,
)

CRASHING = """
import sys
from pathlib import Path
from tests.engine.cache.disk_runs import layers, put, run, tier
with tier(Path(sys.argv[1])) as made:
    put(made, run(5))
    print("small", flush=True)
    made.write(run(300_000, start=5), layers(1) * 0 + ((__import__("mlx.core").core.ones(
        (1, 8, 300_000, 64)),),))
    made.close(60)
    print("large", flush=True)
"""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = _run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        _run("umount", str(folder))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError as why:
        return subprocess.CompletedProcess(command, 127, "", str(why))


@pytest.mark.slow
def test_crash_in_mid_write_leaves_only_sound_files(tmp_path: Path) -> None:
    """Killed while 600 MB are on their way; the file before it stands, of the other not a byte."""
    child = subprocess.Popen(
        [sys.executable, "-c", CRASHING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "small\n"
    end = time.monotonic() + 60
    while not any(path.stat().st_size > 1 << 20 for path in tmp_path.glob(".*.kv.tmp")):
        assert time.monotonic() < end
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert child.stdout.read() == ""
    assert list(tmp_path.glob(".*.kv.tmp"))
    assert stored(tmp_path) == [run(5)]
    assert len(list(tmp_path.iterdir())) == 1


def test_temporary_file_of_a_living_server_stays(tmp_path: Path) -> None:
    alive, dead = tmp_path / f".a{files.TEMPORARY}", tmp_path / f".b{files.TEMPORARY}"
    dead.write_bytes(b"half")
    with alive.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert stored(tmp_path) == []
        assert alive.exists()
        assert not dead.exists()
    assert stored(tmp_path) == []
    assert not alive.exists()


def test_two_servers_write_the_same_run_at_once(tmp_path: Path) -> None:
    with tier(tmp_path) as one, tier(tmp_path) as other:
        names = {one.write(run(50), layers(50)), other.write(run(50), layers(50))}
        drained(one)
        drained(other)
        (name,) = names
        assert not isinstance(fetched(one, name), Unsound)
        assert not isinstance(fetched(other, name), Unsound)
    assert stored(tmp_path) == [run(50)]


@pytest.mark.parametrize(
    ("free_bytes", "words"),
    [
        pytest.param(free_on_disk, "bytes are free there", id="seen-before"),
        pytest.param(lambda _: 1 << 40, "No space left on device", id="met-in-mid-write"),
    ],
)
def test_full_disk_is_one_line_and_what_is_there_is_served(
    mounted: Path, free_bytes: FreeBytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with tier(mounted, clock=clock, free_bytes=free_bytes) as made:
        name = put(made, run(5))
        (mounted / "others").write_bytes(bytes(700_000))
        for first in range(1, 6):
            made.write(run(5000, first=first), layers(5000))
        events = [event for event in drained(made) if isinstance(event, NotWritten)]
        assert [event.reason for event in events] == [Refusal.NO_SPACE] * 5
        (line,) = caplog.messages
        assert str(mounted) in line
        assert words in line
        assert not list(mounted.glob(".*"))
        assert not isinstance(fetched(made, name), Unsound)
        (mounted / "others").unlink()
        clock.now += RETRY_S
        put(made, run(50))
    assert set(stored(mounted)) == {run(5), run(50)}


def test_disk_without_the_free_space_that_is_asked_for(
    mounted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the system tells it, not a number that the test made up."""
    with tier(mounted, min_free_bytes=shutil.disk_usage(mounted).free) as made:
        made.write(run(5), layers(5))
        (event,) = drained(made)
        assert event.reason is Refusal.NO_SPACE
        assert "min_free_bytes" in caplog.text


def test_read_only_disk_serves_what_is_there(
    mounted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tier(mounted) as made:
        name = put(made, run(5))
    assert _run("mount", "-o", "remount,ro", str(mounted)).returncode == 0
    clock = Clock(time.time())
    made = DiskTier(rules(mounted), IDENTITY, clock=clock)
    assert [one.run for one in made.open(silent)] == [run(5)]
    (line,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert str(mounted) in line
    assert "Read-only file system" in line
    assert made.stats()["is_writable"] is False
    assert not isinstance(fetched(made, name), Unsound)
    made.used([name])
    made.write(run(6), layers(6))
    assert [event.reason for event in drained(made)] == [Refusal.READ_ONLY]
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1
    assert _run("mount", "-o", "remount,rw", str(mounted)).returncode == 0
    clock.now += RETRY_S
    put(made, run(6))
    assert made.stats()["is_writable"] is True
    made.close(LONG_S)
    assert set(stored(mounted)) == {run(5), run(6)}


def test_damaged_file_on_a_read_only_disk_is_skipped(mounted: Path) -> None:
    with tier(mounted) as made:
        name = put(made, run(5))
    os.truncate(mounted / name, 100)
    assert _run("mount", "-o", "remount,ro", str(mounted)).returncode == 0
    assert stored(mounted) == []
    assert (mounted / name).exists()


def test_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    with tier(folder) as made:
        (line,) = caplog.messages
        assert f"cache.disk.path={folder}" in line
        assert made.stats()["is_writable"] is False
        made.write(run(5), layers(5))
        (event,) = drained(made)
        assert isinstance(event, NotWritten)
        assert isinstance(fetched(made, event.file), Unsound)
        assert made.stats()["write_failures"] == 1


def test_folder_that_is_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with tier(folder) as made:
        put(made, run(5))
        shutil.rmtree(folder)
        put(made, run(6))
    assert stored(folder) == [run(6)]


def test_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tier(tmp_path) as made:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            made.write(run(500), layers(500))
            (event,) = drained(made)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert event.reason is Refusal.NO_SPACE
        assert not list(tmp_path.iterdir())


def test_writing_does_not_hold_up_the_tick(tmp_path: Path) -> None:
    """Handing over 100 MB takes no longer than looking at it."""
    import mlx.core as mx

    given = ((mx.ones((1, 8, 25_000, 128)),),)
    mx.eval(given)
    with tier(tmp_path) as made:
        start = time.perf_counter()
        made.write(run(25_000), given)
        handed_s = time.perf_counter() - start
        assert made.stats()["queue_bytes"] == 8 * 25_000 * 128 * 4
        start = time.perf_counter()
        wait_for(lambda: made.stats()["queue_bytes"] == 0)
        assert handed_s < time.perf_counter() - start
