"""`conf/settings.yaml` as data, and how a row shows its part of the tree.

Knows names, order and views. Does not know how a value is changed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mlxcel.config.paths import data_dir

_DEFAULT_SLOTS = 4
"""What `scheduler.parallel: -1` means (contract `cli-env.md`, 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting as HTTP knows it."""

    name: str
    key: str
    type: str
    help: str
    reason: str = ""
    """Why it needs a restart; empty for a setting that PATCH may change."""
    view: str = ""
    also: bool = False
    """A second view of a key that another row owns."""

    @property
    def mutable(self) -> bool:
        return not self.reason

    def covers(self, key: str) -> bool:
        return key == self.key or key.startswith(f"{self.key}.")


def load_rows(path: Path | None = None) -> tuple[Row, ...]:
    path = path if path is not None else data_dir("conf") / "settings.yaml"
    raw = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return tuple(_row(row, raw["fixed"], raw["fixed_help"]) for row in raw["rows"])


def _row(raw: Mapping[str, Any], reasons: Mapping[str, str], fixed_help: str) -> Row:
    given = dict(raw)
    if "fixed" in given:
        given["reason"] = reasons[given.pop("fixed")]
        given["help"] = fixed_help
    return Row(**given)


def owner(key: str, rows: Sequence[Row]) -> Row | None:
    """The row that shows a leaf: of those that cover it, the one that says most."""
    owners = [row for row in rows if row.covers(key) and not row.also]
    return max(owners, key=lambda row: len(row.key), default=None)


def pick(tree: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; KeyError names the key."""
    at: Any = tree
    for name in key.split("."):
        if not isinstance(at, Mapping) or name not in at:
            raise KeyError(key)
        at = at[name]
    return at


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values; an empty mapping counts as a value, `node` blocks do not."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            if name != "node":
                yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def shown(row: Row, tree: Mapping[str, Any], rows: Sequence[Row]) -> Any:
    """What a row shows; a row of a section leaves out what has a row of its own."""
    if row.view == "json":
        return _block(row, tree, rows)
    value = pick(tree, row.key)
    return _VIEWS[row.view](value, tree) if row.view else value


def slots(tree: Mapping[str, Any]) -> int:
    parallel = int(pick(tree, "scheduler.parallel"))
    return _DEFAULT_SLOTS if parallel == -1 else parallel


def window(tree: Mapping[str, Any]) -> int:
    """Tokens of context per slot as configured; 0: the model's own."""
    return int(pick(tree, "limits.ctx_size")) // slots(tree)


def _block(row: Row, tree: Mapping[str, Any], rows: Sequence[Row]) -> str:
    section: dict[str, Any] = {}
    for key, value in leaves(tree):
        if owner(key, rows) is row:
            _put(section, key.removeprefix(f"{row.key}."), value)
    return json.dumps(section, separators=(",", ":"), ensure_ascii=False)


def _put(section: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for name in parents:
        section = section.setdefault(name, {})
    section[last] = value


def _keys(keys: Sequence[str], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Whether there are API keys and how many, never what they are."""
    count = len(keys) + sum(_lines(Path(file)) for file in pick(tree, "server.api_key_files"))
    return {"configured": count > 0, "count": count, "redacted": True}


def _lines(file: Path) -> int:
    """Keys in a key file. One that cannot be read stops the server elsewhere, with the reason."""
    try:
        lines = file.expanduser().read_bytes().split(b"\n")
    except OSError:
        return 0
    return sum(1 for line in lines if line and not line.startswith(b"#"))


_VIEWS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "secret": lambda value, _: {"configured": value is not None, "redacted": True},
    "keys": _keys,
    "first": lambda names, _: min(names, default=None),
    "sorted": lambda names, _: sorted(set(names)),
    "slots": lambda _, tree: slots(tree),
    "per_slot": lambda _, tree: window(tree),
    "pings": lambda seconds, _: None if seconds == -1 else seconds,
    # `auto` that came to "off" has no route on which this could be read.
    "switch": lambda value, _: value is not False,
}
