"""Writing the files of an agent when something is in the way."""

from pathlib import Path

import pytest

from mlxcel.connect.files import draft, write
from mlxcel.connect.setup import Change, ConnectFailed


def change(path: Path) -> Change:
    return Change(path=path, form="json", settings={"a": 1}, fresh={"b": 2})


def test_what_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    for before, meanwhile in [(None, "{}"), ("{}", '{"c": 3}')]:
        if before is not None:
            path.write_text(before)
        drafted = draft(change(path))
        path.write_text(meanwhile)
        with pytest.raises(ConnectFailed, match="changed meanwhile"):
            write(drafted)
        assert path.read_text() == meanwhile
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "settings.json"):
        with pytest.raises(ConnectFailed, match=f"{path} cannot be read: .* a directory"):
            draft(change(path))


def test_a_failure_leaves_the_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "settings.json"
    path.write_text("{}")
    drafted = draft(change(path))
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ConnectFailed, match=r"settings.json cannot be written: No space left"):
        write(drafted)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "settings.json": "{}",
        "settings.json.bak-1": "{}",
    }


def test_a_difference_says_where_a_last_line_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"a": 2}')
    end = "\n\\ No newline at end of file\n"
    head = f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n"
    assert draft(change(path)).diff() == f'{head}-{{"a": 2}}{end}+{{"a": 1}}{end}'
