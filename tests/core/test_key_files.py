from pathlib import Path

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.core.keys import read_key_files


def test_keys_of_all_files_in_order(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("# ours\nk1\n\n k 2 \n")
    second.write_text("k3\r\n")
    assert read_key_files([str(first), str(second)]) == ["k1", " k 2 ", "k3\r"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "cannot be read", id="missing"),
        pytest.param(b"\xff", "cannot be read", id="not-utf-8"),
        pytest.param(b"# none\n\n", "holds no key", id="empty"),
    ],
)
def test_a_file_without_keys_stops_the_start(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StartupError, match=why):
        read_key_files([str(file)])
