import errno
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.store import space
from mlxcel.store.problems import NoSpace
from mlxcel.store.progress import silent
from mlxcel.store.publish import made_once

SLOW = """
import pathlib, sys, time
from mlxcel.store.progress import silent
from mlxcel.store.publish import made_once

root, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])

def fill(folder):
    with (root / "runs").open("a") as runs:
        runs.write("x")
    (folder / "half").write_text("")
    time.sleep(seconds)

made_once(root / "model", fill, silent)
"""
"""A process that takes its time, and leaves a mark for each folder it makes."""


def started(root: Path, seconds: float) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", SLOW, str(root), str(seconds)])


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    both = [started(tmp_path, 0.5), started(tmp_path, 0.5)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert (tmp_path / "runs").read_text() == "x"
    assert (tmp_path / "model").is_dir()


def test_killed_maker_leaves_nothing_half_made(tmp_path: Path) -> None:
    process = started(tmp_path, 600)
    half = tmp_path / ".partial" / "model" / "half"
    deadline_s = time.monotonic() + 60
    while not half.exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    process.kill()
    process.wait(60)
    assert half.exists()
    assert not (tmp_path / "model").exists()
    made_once(tmp_path / "model", lambda folder: (folder / "done").touch(), silent)
    assert [f.name for f in (tmp_path / "model").iterdir()] == ["done"]


def test_partial_folder_is_kept_where_it_can_be_gone_on_with(tmp_path: Path) -> None:
    left = tmp_path / ".partial" / "model"
    left.mkdir(parents=True)
    (left / "first").write_text("")
    made_once(tmp_path / "model", lambda f: (f / "second").touch(), silent, keep_partial=True)
    assert sorted(f.name for f in (tmp_path / "model").iterdir()) == ["first", "second"]


def test_failure_publishes_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        raise StartupError("no")

    with pytest.raises(StartupError):
        made_once(tmp_path / "model", fill, silent)
    assert not (tmp_path / "model").exists()


def test_a_full_disk_is_named_with_its_path(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(NoSpace, match=f"{tmp_path}: no space is left"):
        made_once(tmp_path / "model", fill, silent)


def test_too_little_space_names_path_needed_and_free(tmp_path: Path) -> None:
    needed = space.free_bytes(tmp_path) * 2
    with pytest.raises(NoSpace, match=rf"{tmp_path}/new: \d+ bytes are needed, \d+ bytes are free"):
        space.require(tmp_path / "new", needed)


def test_store_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=r"file/store cannot be written.*--models-dir"):
        made_once(tmp_path / "file" / "store" / "model", lambda f: None, silent)
