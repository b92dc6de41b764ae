"""The files of an agent: what they would become, and writing that."""

import os
import stat
from copy import deepcopy
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from mlxcel.connect import json_text, toml_text, yaml_text
from mlxcel.connect.merge import merge
from mlxcel.connect.setup import Change, ConnectFailed

FORMS: dict[str, Any] = {"json": json_text, "toml": toml_text, "yaml": yaml_text}
PRIVATE = 0o600
BY_HAND = "put in by hand what is printed without --write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A file as it is and as it shall be. `before` is None where there is no file."""

    path: Path
    before: str | None
    after: str
    holds_key: bool

    @property
    def is_done(self) -> bool:
        return self.before == self.after

    def diff(self) -> str:
        old = "/dev/null" if self.before is None else str(self.path)
        before, after = (self.before or "").splitlines(True), self.after.splitlines(True)
        lines = unified_diff(before, after, old, str(self.path))
        end = "\n\\ No newline at end of file\n"
        return "".join(line if line.endswith("\n") else line + end for line in lines)


def snippet(change: Change) -> str:
    """What the file must hold, in its form."""
    text: str = FORMS[change.form].render({**change.fresh, **change.settings})
    return text


def draft(change: Change) -> Draft:
    """Raises ConnectFailed for a file that cannot be read or edited."""
    before = _text(change.path)
    after = snippet(change) if before is None else _edited(change, before)
    return Draft(path=change.path, before=before, after=after, holds_key=change.holds_key)


def write(draft: Draft) -> Path | None:
    """In one step, after a copy of what there was; returns the copy. A link stays a link. Raises
    ConnectFailed, also when the file is not what it was."""
    if _text(draft.path) != draft.before:
        raise ConnectFailed(f"{draft.path} has changed meanwhile; run the command again")
    real = draft.path.resolve()
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        backup = None if draft.before is None else _backup(real, draft.before)
        _replace(real, draft)
    except OSError as error:
        raise ConnectFailed(f"{draft.path} cannot be written: {error.strerror}") from error
    return backup


def _edited(change: Change, before: str) -> str:
    form = FORMS[change.form]
    try:
        after: str = form.edit(before, change.settings)
        expected = deepcopy(form.read(before))
        merge(expected, change.settings)
        is_right = form.read(after) == expected
    except ValueError as error:
        raise ConnectFailed(f"{change.path}: {error}; mend it, or {BY_HAND}") from error
    if not is_right:
        raise ConnectFailed(f"{change.path} cannot be edited without a loss; {BY_HAND}")
    return after


def _text(path: Path) -> str | None:
    """None where there is no file. Line ends stay as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConnectFailed(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConnectFailed(f"{path} is not UTF-8: {error}") from error


def _backup(path: Path, text: str) -> Path:
    """Under the first name that is free, so that the oldest copy is never lost."""
    number = 1
    while True:
        copy = path.with_name(f"{path.name}.bak-{number}")
        try:
            # It may hold keys, the earlier one of ours among them.
            _create(copy, text, PRIVATE)
        except FileExistsError:
            number += 1
        else:
            return copy


def _replace(path: Path, draft: Draft) -> None:
    beside = path.with_name(f".{path.name}.mlxcel-{os.getpid()}")
    _create(beside, draft.after, PRIVATE if draft.holds_key else 0o666)
    try:
        if draft.before is not None and not draft.holds_key:
            beside.chmod(stat.S_IMODE(path.stat().st_mode))
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _create(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8"))
