"""`conf/settings.yaml` as data, and how a row shows its part of the tree.

Knows names, order and views. Does not know how a value is changed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from mlxcel.config.keys import is_live, leaves, read, write
from mlxcel.config.paths import data_dir
from mlxcel.core.keys import read_key_files
from mlxcel.core.window import slot_count, slot_share

UNSAID_PROPOSALS = 3
"""Of the contract, where nothing says a number (http-settings, row 59)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting as HTTP knows it."""

    name: str
    key: str | None = None
    """None: of a part that this server lacks; `value` is all there is to show. Also shown where
    the chosen option of a group has no such key."""
    value: Any = None
    type: str
    help: str
    reason: str = ""
    """Why it cannot be changed while the server runs; empty for a mutable one."""
    allowed: tuple[str, ...] | None = None
    """The words a row without a key would take; of others the schema says it."""
    view: str = ""
    also: bool = False
    """A second view of a key that another row owns."""

    @property
    def mutable(self) -> bool:
        """Whether PATCH may change it."""
        return self.key is not None and is_live(self.key)

    def covers(self, key: str) -> bool:
        return self.key is not None and (key == self.key or key.startswith(f"{self.key}."))


@cache
def load_rows(path: Path | None = None) -> tuple[Row, ...]:
    path = path if path is not None else data_dir("conf") / "settings.yaml"
    raw = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return tuple(_row(row, raw) for row in raw["rows"])


def _row(raw: Mapping[str, Any], words: Mapping[str, Any]) -> Row:
    given = dict(raw)
    if "fixed" in given:
        lacks = given.pop("lacks", None)
        end = (
            words["restart"] if lacks is None else f"{words['no_restart']}: {words['lacks'][lacks]}"
        )
        given["reason"] = f"{words['fixed'][given.pop('fixed')]}; {end}"
        given["help"] = words["fixed_help"]
    if "allowed" in given:
        given["allowed"] = tuple(given["allowed"])
    return Row(**given)


def live_keys(rows: Sequence[Row]) -> dict[str, str]:
    """Name to tree key of what a PATCH may change."""
    return {row.name: row.key for row in rows if row.key is not None and row.mutable}


def owner(key: str, rows: Sequence[Row]) -> Row | None:
    """The row that shows a leaf: of those that cover it, the one that says most."""
    owners = [row for row in rows if row.covers(key) and not row.also]
    return max(owners, key=lambda row: len(row.key or ""), default=None)


def shown(row: Row, tree: Mapping[str, Any], rows: Sequence[Row]) -> Any:
    """What a row shows; a row of a section leaves out what has a row of its own."""
    if row.key is None:
        return row.value
    if row.view == "json":
        return _block(row, tree, rows)
    try:
        value = read(tree, row.key)
    except KeyError:
        return row.value
    return _VIEWS[row.view](value, tree) if row.view else value


def _block(row: Row, tree: Mapping[str, Any], rows: Sequence[Row]) -> str:
    section: dict[str, Any] = {}
    for key, value in leaves(tree):
        if row.covers(key) and ".node." not in f"{key}." and owner(key, rows) is row:
            write(section, key.removeprefix(f"{row.key}."), value)
    return json.dumps(section, separators=(",", ":"), ensure_ascii=False)


def _keys(keys: Sequence[str], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Whether there are API keys and how many, never what they are."""
    count = len(keys) + len(read_key_files(read(tree, "server.api_key_files")))
    return {"configured": count > 0, "count": count, "redacted": True}


def _per_slot(ctx_size: int, tree: Mapping[str, Any]) -> int:
    return slot_share(ctx_size, slot_count(tree["scheduler"]))


def _unfused(is_fused: bool, tree: Mapping[str, Any]) -> dict[str, bool]:
    """Whether there are adapters whose scales can be changed."""
    return {"unfused": bool(read(tree, "model.lora.adapters")) and not is_fused}


def _proposals(draft: Mapping[str, Any]) -> int:
    """Tokens; what the contract has where nobody drafts or a drafter's file says it."""
    block = draft.get("block_size")
    return int(draft.get("max_draft", UNSAID_PROPOSALS if block is None else block - 1))


_VIEWS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "secret": lambda value, _: {"configured": value is not None, "redacted": True},
    "keys": _keys,
    "first": lambda names, _: min(names, default=None),
    "sorted": lambda names, _: sorted(set(names)),
    "per_slot": _per_slot,
    "pings": lambda seconds, _: None if seconds == -1 else seconds,
    "rows": lambda _, tree: slot_count(tree["scheduler"]),
    "word": lambda value, _: "none" if value is None else value,
    "not": lambda value, _: not value,
    "zero": lambda value, _: None if value == 0 else value,
    "size": lambda value, _: "none" if value in (0, None) else str(value),
    "dashes": lambda word, _: None if word in ("none", "auto") else word.replace("_", "-"),
    "proposals": lambda draft, _: _proposals(draft),
    "block": lambda draft, _: draft.get("block_size", draft.get("max_draft")),
    "count": lambda values, _: {"count": len(values)},
    "unfused": _unfused,
    "gemma4": lambda model, _: str(model.get("family", "")).startswith("gemma4"),
}
