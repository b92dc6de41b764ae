"""Models whose KV cannot be cut keep no KV of system messages in files, and say so."""

from pathlib import Path

import pytest

from tests.engine.driver import Driver
from tests.engine.families_driven import driven
from tests.tiny.families import GEMMA3


def test_prefix_files_that_were_asked_for_are_told_to_have_no_effect(
    tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with driven(GEMMA3):
        Driver(tiny, cache={"prefix_dir": str(tmp_path / "kv")})
    words = [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]
    assert words == ["cache.prefix_dir has no effect: the state of this model cannot be cut"]
    assert not (tmp_path / "kv").exists()
