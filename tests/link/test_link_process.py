import stat
import tempfile
from pathlib import Path

import pytest

from mlxcel.link import process
from mlxcel.link.process import describe_exit, private_folder


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param(0, "exit code 0", id="clean"),
        pytest.param(70, "exit code 70", id="code"),
        pytest.param(-9, "killed by SIGKILL", id="named-signal"),
        pytest.param(-250, "killed by signal 250", id="unknown-signal"),
    ],
)
def test_an_exit_is_described(code: int, words: str) -> None:
    assert describe_exit(code) == words


def test_the_socket_folder_is_private() -> None:
    folder = private_folder()
    mode = stat.S_IMODE(folder.stat().st_mode)
    folder.rmdir()
    assert mode == 0o700


def test_a_long_temporary_folder_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = private_folder()
    folder.rmdir()
    assert len(str(folder / "data")) <= process.MAX_IPC_PATH
    assert list(long.iterdir()) == []
