"""The prompt cache in files, by the whole program: restarts, damage, disks that do not take or give
what they should, neighbours, and deaths in mid-write. Each time a clear line and a working server;
cached answers are those that a cold prompt gets (greedy, float32)."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.disk_cache import (
    add_runs,
    ask,
    cold,
    disk,
    halves,
    nbytes,
    on_disk,
    prompt,
    runs,
    settled,
)
from tests.whole.pids import await_gone
from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

FOUND = r"prompt cache on disk: (\d+) runs of (\d+) bytes in (\S+); skipped: (.*)"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_checkpoint(tmp_path_factory.mktemp("disk") / "tiny", window=2048)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shapes, and other weights."""
    return build_tiny_checkpoint(tmp_path_factory.mktemp("disk") / "tiny", window=2048, seed=1)


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 KiB of KV a token: a prompt of some hundred tokens takes a moment to write."""
    path = tmp_path_factory.mktemp("heavy") / "heavy"
    return build_tiny_checkpoint(path, window=4096, layers=8, hidden=512, heads=8, kv_heads=8)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    made = _mount("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    if made:
        pytest.skip(f"no tmpfs can be mounted here: {made}")
    try:
        yield folder
    finally:
        _mount("umount", str(folder))


def _mount(*command: str) -> str:
    """What went wrong; empty: nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError as why:
        return str(why)
    return done.stderr.strip() if done.returncode else ""


def warnings(program: Program) -> list[str]:
    """Of the cache on disk."""
    lines = [line for line in program.log if " WARNING " in line or " ERROR " in line]
    return [line for line in lines if "prompt cache" in line or "cache.disk" in line]


def found_line(program: Program) -> tuple[int, str]:
    match = re.search(FOUND, program.text)
    assert match is not None, program.text
    return int(match[1]), match[4]


@dataclass(frozen=True)
class Kept:
    """A folder as a server leaves it, what it answered, and the files of each answer."""

    folder: Path
    said: dict[str, str]
    files: dict[str, list[str]]

    def copied(self, folder: Path) -> dict[str, str]:
        """Its files, for one test to do with as it likes; the answers."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return self.said


def fill(model: Path, folder: Path, *names: str) -> Kept:
    said: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    with Program(*on_disk(model, folder)) as program:
        for name in names:
            before = runs(folder)
            said[name] = ask(program, prompt(name)).text
            settled(program)
            files[name] = [path.name for path in runs(folder) if path not in before]
        assert program.stop() == 0
    return Kept(folder, said, files)


@pytest.fixture(scope="module")
def kept(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return fill(model, tmp_path_factory.mktemp("kept"), "fox")


def test_restarted_server_goes_on_where_the_last_one_was(model: Path, tmp_path: Path) -> None:
    said = fill(model, tmp_path, "fox", "owl").said
    count = len(runs(tmp_path))
    with Program(*on_disk(model, tmp_path)) as program:
        assert found_line(program) == (count, "0 unsound, 0 foreign, 0 expired")
        for name in said:
            again = ask(program, prompt(name))
            assert (again.reused, again.source) == (224, "disk")
            assert again.text == said[name] == cold(program, prompt(name))
            assert ask(program, prompt(name)).source == "memory"
        told = disk(program)
        assert (told["files"], told["bytes"]) == (count, nbytes(tmp_path))
        assert (told["hits"], told["unsound"], told["writes"]) == (told["reads"], 0, 0)
        assert not warnings(program)


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def _flip_last(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def _flip_id(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[8 + int.from_bytes(raw[:8], "little") + 40] ^= 1
    path.write_bytes(raw)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "bee": (_truncate, "bytes in place of"),
    "owl": (_empty, "before it is complete"),
    "elk": (_flip_id, "header is not the one"),
    "ant": (_flip_last, "digest of its arrays"),
}


def test_damaged_files_are_named_counted_removed_and_never_served(
    model: Path, tmp_path: Path
) -> None:
    left = fill(model, tmp_path, "fox", *DAMAGE)  # all go on from the first token of the first
    for name, (hurt, _) in DAMAGE.items():
        for file in left.files[name]:
            hurt(tmp_path / file)
    with Program(*on_disk(model, tmp_path)) as program:
        for name, (_, words) in DAMAGE.items():
            answer = ask(program, prompt(name))
            assert (answer.reused, answer.text) == (0, left.said[name])
            lines = [line for line in warnings(program) if words in line]
            assert any(file in line for line in lines for file in left.files[name]), name
            assert ask(program, prompt(name)).source == "memory"
        assert ask(program, prompt("fox")).source == "disk"
        assert settled(program)["unsound"] >= len(DAMAGE)
        assert program.stop() == 0
    with Program(*on_disk(model, tmp_path)) as program:
        for name in DAMAGE:
            assert ask(program, prompt(name)).source == "disk"
        assert disk(program)["unsound"] == 0


@pytest.fixture(scope="module")
def foreign(other: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return fill(other, tmp_path_factory.mktemp("foreign"), "fox")


@pytest.mark.parametrize("is_renamed", [False, True], ids=["its-own-name", "a-name-of-ours"])
def test_file_of_another_model_is_left_alone_and_not_used(
    model: Path, kept: Kept, foreign: Kept, tmp_path: Path, is_renamed: bool
) -> None:
    said = kept.copied(tmp_path)
    for mine, path in zip(runs(tmp_path), runs(foreign.folder), strict=True):
        if is_renamed:
            shutil.copy(path, mine)
        else:
            mine.unlink()
            shutil.copy(path, tmp_path)
    before = {path: path.read_bytes() for path in runs(tmp_path)}
    with Program(*on_disk(model, tmp_path)) as program:
        assert found_line(program) == (0, f"0 unsound, {len(before)} foreign, 0 expired")
        assert ("of another model" in program.text) is is_renamed
        answer = ask(program, prompt("fox"))
        assert (answer.reused, answer.text) == (0, said["fox"])
        assert settled(program)["foreign"] == len(before)
    assert is_renamed or all(path.read_bytes() == raw for path, raw in before.items())


def test_read_only_disk_is_one_line_and_is_read(model: Path, kept: Kept, mounted: Path) -> None:
    said = kept.copied(mounted)
    assert not _mount("mount", "-o", "remount,ro", str(mounted))
    with Program(*on_disk(model, mounted)) as program:
        again = ask(program, prompt("fox"))
        assert (again.source, again.text) == ("disk", said["fox"])
        for name in ("owl", "elk"):
            assert ask(program, prompt(name)).text == cold(program, prompt(name))
        told = settled(program)
        assert told["is_writable"] is False
        assert told["write_failures"] >= 2
        (line,) = warnings(program)
        assert f"cache.disk.path={mounted} cannot be written (Read-only file system" in line
        assert program.stop() == 0


def test_full_disk_is_one_line_and_is_read(model: Path, kept: Kept, mounted: Path) -> None:
    said = kept.copied(mounted)
    (mounted / "others").write_bytes(bytes(shutil.disk_usage(mounted).free - 60_000))
    with Program(*on_disk(model, mounted)) as program:
        for name in ("owl", "elk"):
            assert ask(program, prompt(name, 400)).text == cold(program, prompt(name, 400))
        told = settled(program)
        assert told["write_failures"] >= 2
        assert told["is_writable"] is False
        (line,) = warnings(program)
        assert f"not written to {mounted}" in line
        again = ask(program, prompt("fox"))
        assert (again.source, again.text) == ("disk", said["fox"])
        assert not halves(mounted)
        assert program.stop() == 0


@pytest.mark.parametrize("below", ["", "cache"], ids=["a-file-itself", "below-a-file"])
def test_path_at_a_regular_file_is_one_line(model: Path, tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / "file" / below
    with Program(*on_disk(model, folder)) as program:
        first = ask(program, prompt("fox"))
        assert ask(program, prompt("fox")).source == "memory"
        assert first.text == cold(program, prompt("fox"))
        (line,) = warnings(program)
        assert f"cache.disk.path={folder} cannot be used" in line
        assert settled(program)["is_writable"] is False
        assert program.stop() == 0
    assert (tmp_path / "file").read_text() == "mine"


def test_capacity_below_what_is_kept_is_met_and_the_newest_stays(
    model: Path, tmp_path: Path
) -> None:
    names = ["ant", "bee", "cat", "dog", "elk", "fox"]
    words = on_disk(model, tmp_path, "cache.disk.capacity_bytes=400000")
    with Program(*words) as program:
        said = {name: ask(program, prompt(name)).text for name in names}
        told = settled(program)
        assert told["evictions"] >= 4
        assert told["bytes"] == nbytes(tmp_path) <= 400_000
        assert not warnings(program)
        assert program.stop() == 0
    with Program(*words) as program:
        assert ask(program, prompt("fox")).source == "disk"
        gone = ask(program, prompt("ant"))
        assert (gone.reused, gone.text) == (0, said["ant"])


def test_two_servers_on_one_folder_help_and_do_not_hurt_each_other(
    model: Path, tmp_path: Path
) -> None:
    words = on_disk(model, tmp_path)
    with Program(*words) as one, Program(*words) as two, ThreadPoolExecutor(8) as pool:
        both = [(p, name) for name in ("ant", "bee", "cat", "dog") for p in (one, two)]
        told = list(pool.map(lambda job: ask(job[0], prompt(job[1])), both))
        assert all(a.text == b.text for a, b in zip(told[::2], told[1::2], strict=True))
        ask(one, prompt("elk"))
        ask(two, prompt("fox"))
        assert not settled(one)["unsound"] + settled(two)["unsound"]
        assert not warnings(one) + warnings(two)
    with Program(*words) as third:
        for name in ("ant", "bee", "cat", "dog", "elk", "fox"):
            assert ask(third, prompt(name)).source == "disk"
        assert disk(third)["unsound"] == 0


def test_reset_empties_the_folder_and_what_comes_after_is_kept(model: Path, tmp_path: Path) -> None:
    with Program(*on_disk(model, tmp_path)) as program:
        ask(program, prompt("fox"))
        assert program.post("/v1/cache/reset", {})[0] == 200
        assert ask(program, prompt("fox")).reused == 0
        settled(program)
        assert program.stop() == 0
    with Program(*on_disk(model, tmp_path)) as program:
        assert ask(program, prompt("fox")).source == "disk"


@pytest.mark.slow
def test_start_with_thousands_of_files_is_shown_and_takes_seconds(
    model: Path, kept: Kept, tmp_path: Path
) -> None:
    said = kept.copied(tmp_path)
    add_runs(tmp_path, 2000)
    count = len(runs(tmp_path))
    with Program(*on_disk(model, tmp_path), wait="listening") as program:
        program.await_health(status="ok")
        assert found_line(program) == (count, "0 unsound, 0 foreign, 0 expired")
        begun = _time_of(program, "reading the prompt cache on disk")
        assert (
            _time_of(program, f"{count} runs of") - begun < 20
        )  # half a second on an idle machine
        again = ask(program, prompt("fox"))
        assert (again.source, again.text) == ("disk", said["fox"])
        assert disk(program)["files"] == count


def _time_of(program: Program, words: str) -> float:
    """Seconds of the day, as its log has it."""
    line = next(line for line in program.log if words in line)
    hours, minutes, seconds = line.split()[1].replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


# Deaths in mid-write.


def _await_half(folder: Path, kept: int) -> None:
    """Until so many files are there, and one more is being written."""
    end = time.monotonic() + 60
    while len(runs(folder)) < kept or not halves(folder):
        assert time.monotonic() < end, list(folder.iterdir())
        time.sleep(0.001)


NAMES = ("ant", "bee", "cat", "dog", "elk", "fox")


def _ask_all(program: Program) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(len(NAMES))
    for name in NAMES:
        pool.submit(ask, program, prompt(name, 200))
    return pool


@pytest.mark.long
def test_worker_killed_in_mid_write_comes_back_to_what_was_written(
    heavy: Path, tmp_path: Path
) -> None:
    with Program(*on_disk(heavy, tmp_path), "workers.backoff.initial_s=0.2") as program:
        pool = _ask_all(program)
        _await_half(tmp_path, 1)
        os.kill(program.health()["worker"]["pid"], signal.SIGKILL)
        pool.shutdown()
        program.await_health(status="ok", worker__restarts=1)
        assert not halves(tmp_path)
        told = [ask(program, prompt(name, 200)) for name in NAMES]
        assert any(one.source == "disk" for one in told)
        assert [one.text for one in told] == [cold(program, prompt(n, 200)) for n in NAMES]
        assert disk(program)["unsound"] == 0
        assert not warnings(program)
        assert program.stop() == 0


@pytest.mark.slow
def test_front_killed_in_mid_write_leaves_sound_files(heavy: Path, tmp_path: Path) -> None:
    with Program(*on_disk(heavy, tmp_path)) as program:
        worker = program.health()["worker"]["pid"]
        pool = _ask_all(program)
        _await_half(tmp_path, 1)
        program.signal(signal.SIGKILL)
        await_gone(worker)
        pool.shutdown()
    with Program(*on_disk(heavy, tmp_path)) as program:
        count, skipped = found_line(program)
        assert (count, skipped) == (len(runs(tmp_path)), "0 unsound, 0 foreign, 0 expired")
        assert count >= 1
        assert not halves(tmp_path)


@pytest.mark.long
def test_server_told_to_end_in_mid_write_writes_the_rest(heavy: Path, tmp_path: Path) -> None:
    with Program(*on_disk(heavy, tmp_path)) as program:
        pool = _ask_all(program)
        pool.shutdown()
        program.signal(signal.SIGTERM)
        assert program.wait(60) == 0
        assert not halves(tmp_path)
    with Program(*on_disk(heavy, tmp_path)) as program:
        assert [ask(program, prompt(n, 200)).source for n in NAMES] == ["disk"] * len(NAMES)


@pytest.mark.long
def test_disk_that_does_not_answer_holds_up_one_request_for_a_while_and_the_end_not_at_all(
    model: Path, kept: Kept, tmp_path: Path
) -> None:
    """A pipe that nobody writes to stands for it."""
    said = kept.copied(tmp_path)
    with Program(*on_disk(model, tmp_path)) as program:
        for path in runs(tmp_path):
            path.unlink()
            os.mkfifo(path)
        answer = ask(program, prompt("fox"))
        assert (answer.reused, answer.text) == (0, said["fox"])
        assert "not read within 10 s" in "".join(warnings(program))
        assert ask(program, prompt("fox")).source == "memory"
        program.signal(signal.SIGTERM)
        assert program.wait(10) == 0
