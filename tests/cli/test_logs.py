"""Where log lines go, which of them, and what is no place for them."""

import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxcel.cli.logs import set_up_logging
from mlxcel.core.errors import StartupError

OURS = logging.getLogger("mlxcel.of.the.test")
OTHERS = logging.getLogger("others.of.the.test")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What is set up here holds for the whole process."""
    root, ours = logging.getLogger(), logging.getLogger("mlxcel")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def options(file: Path, **changed: object) -> dict[str, Any]:
    return {"enabled": True, "level": "info", "file": str(file)} | changed


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({}, ["I", "E", "other"], id="info"),
        pytest.param({"level": "debug"}, ["D", "I", "E", "other"], id="debug"),
        pytest.param({"level": "error"}, ["E", "other"], id="error"),
        pytest.param({"enabled": False, "level": "debug"}, [], id="disabled"),
    ],
)
def test_lines_that_are_logged(tmp_path: Path, changed: dict[str, Any], said: list[str]) -> None:
    file = tmp_path / "log"
    set_up_logging(options(file, **changed))
    OURS.debug("D")
    OURS.info("I")
    OURS.error("E")
    OTHERS.info("no")
    OTHERS.warning("other")
    assert [line.rpartition(" ")[2] for line in file.read_text().splitlines()] == said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["link", "folder", "gone/log"])
def test_what_is_no_place_for_a_log_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StartupError, match=rf"observability\.log\.file .*{name}"):
        set_up_logging(options(tmp_path / name))
