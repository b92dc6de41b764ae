"""What was measured once is known at the next start."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.status import MtpState, MtpVerdict
from mlxcel.engine.draft.mtp.memory import PolicyMemory
from mlxcel.engine.draft.mtp.policy import SAMPLES, MtpPolicy
from tests.engine.draft.test_mtp_policy import PAIRING, burst, policy


def measured(folder: Path | None) -> MtpPolicy:
    """A start, with rounds that pay."""
    memory = PolicyMemory(folder, PAIRING)
    made = policy(remembered=memory.read(), keep=memory.keep)
    for _ in range(SAMPLES):
        burst(made, round_ms=8.0)
    return made


def file_of(folder: Path) -> Path:
    (path,) = folder.glob("mtp-policy/*")
    return path


def test_the_next_start_knows(tmp_path: Path) -> None:
    assert measured(tmp_path).report().state is MtpState.SETTLED
    assert PolicyMemory(tmp_path, PAIRING).read() is MtpVerdict.ENABLE
    path = file_of(tmp_path)
    assert path.suffix == ".json"
    assert json.loads(path.read_text()) == {
        "version": 3,
        "target": "t",
        "drafter": "d",
        "hardware": "h",
        "block_size": 3,
        "verdict": "enable",
        "speed_up": 2.5,
    }


def test_only_a_verdict_is_kept(tmp_path: Path) -> None:
    memory = PolicyMemory(tmp_path, PAIRING)
    made = policy(keep=memory.keep)
    for _ in range(SAMPLES - 1):
        burst(made)
    policy(keep=memory.keep, force=True).end()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changed",
    [{"target": "T"}, {"drafter": "D"}, {"hardware": "H"}, {"block_size": 4}],
    ids=lambda changed: next(iter(changed)),
)
def test_another_pairing_has_a_file_of_its_own(tmp_path: Path, changed: Any) -> None:
    measured(tmp_path)
    other = PolicyMemory(tmp_path, replace(PAIRING, **changed))
    assert other.read() is None
    other.keep(MtpVerdict.DECLINE, 0.5)
    assert other.read() is MtpVerdict.DECLINE
    assert PolicyMemory(tmp_path, PAIRING).read() is MtpVerdict.ENABLE


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(b"\xff\xfe", "malformed", id="no-json"),
        pytest.param(b'{"x":' * 100_000, "recursion", id="deep"),
        pytest.param(b"[]", "object", id="no-object"),
        pytest.param(b'{"version": 2, "verdict": "enable"}', "version 2, not 3", id="old"),
        pytest.param(b'{"version": 4}', "version 4, not 3", id="new"),
        pytest.param(b'{"version": 3}', "missing required field", id="incomplete"),
    ],
)
def test_a_bad_file_is_as_good_as_none(
    tmp_path: Path, content: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    measured(tmp_path)
    path = file_of(tmp_path)
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert PolicyMemory(tmp_path, PAIRING).read() is None
    assert str(path) in caplog.text
    assert why in caplog.text
    measured(tmp_path)  # and is replaced
    assert PolicyMemory(tmp_path, PAIRING).read() is MtpVerdict.ENABLE


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"verdict": "maybe"}, "maybe"), ({"target": "elsewhere"}, "it is of elsewhere")],
    ids=["verdict", "moved"],
)
def test_a_file_that_says_something_else(
    tmp_path: Path, changed: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    measured(tmp_path)
    path = file_of(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert PolicyMemory(tmp_path, PAIRING).read() is None
    assert why in caplog.text


def test_a_folder_in_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = PolicyMemory(tmp_path, PAIRING).path
    assert path is not None
    path.mkdir(parents=True)
    assert measured(tmp_path).report().state is MtpState.SETTLED
    assert "is not used" in caplog.text
    assert "cannot be kept" in caplog.text
    assert list(path.parent.iterdir()) == [path]  # nothing is left of the attempt


def test_without_a_cache_folder_nothing_is_kept() -> None:
    assert measured(None).report().verdict is MtpVerdict.ENABLE
    assert PolicyMemory(None, PAIRING).read() is None
