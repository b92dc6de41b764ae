"""`conf/flags.yaml` as data: commands, and the rows of flags and variables.

Knows how the table is written. Knows nothing of an argv or of values.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from mlxcel.config.paths import data_dir

SERVER = "mlxcel-server"
"""The program that has no commands: it only serves."""
SWITCHES = frozenset({"flag", "no-flag"})
BOOLEANS = SWITCHES | {"bool"}
SPLIT = frozenset({"list", "secret", "bias", "adapters", "scaled-adapters"})
"""Types whose text is a comma list when there may be many values."""
LISTS = frozenset({"list", "texts", "bias", "adapters", "scaled-adapters"})
"""Types that are lists by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row; the head of `conf/flags.yaml` says what the fields mean."""

    type: str
    flags: tuple[str, ...] = ()
    negated: tuple[str, ...] = ()
    server: str = ""
    key: str = ""
    option: str = ""
    ask: str = ""
    env: tuple[str, ...] = ()
    command: str = ""
    help: str = ""
    metavar: str = ""
    default: object = None
    const: object = True
    picks: Mapping[str, str] = field(default_factory=dict)
    suggests: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str | None] = field(default_factory=dict)
    many: bool = False
    adds: bool = False
    allowed: tuple[str, ...] = ()
    map: Mapping[object, object] = field(default_factory=dict)
    words: Mapping[str, object] = field(default_factory=dict)
    warn: Mapping[object, str] = field(default_factory=dict)
    reject: Mapping[str, str] = field(default_factory=dict)
    rank: int = 0
    exists: bool = False
    keys: bool = False
    fold: int = 0
    scale: int = 0
    alone: Mapping[str, str] = field(default_factory=dict)
    presence: bool = False
    env_wins: bool = False
    unreadable: object = None
    takes: bool = False
    count: int = 1
    neutral: str = ""
    reason: str = ""

    @property
    def repeats(self) -> bool:
        """Whether several values make one list."""
        return self.many or self.type in LISTS

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups in which it chooses an option."""
        return (self.key[1:],) if self.key.startswith("@") else tuple(self.picks)

    @property
    def takes_value(self) -> bool:
        """Whether the next word is its value; a `bool` takes one after `=` only."""
        return self.takes if self.type in ("inert", "refused") else self.type not in BOOLEANS

    @property
    def has_neutral_value(self) -> bool:
        """Whether some value of it is accepted; of a switch only a variable may say no."""
        return bool(self.neutral) and (self.takes_value or not self.flags)

    def asks_nothing(self, text: str) -> bool:
        """Whether the value is what would be without it."""
        return bool(self.neutral) and re.fullmatch(self.neutral, text) is not None

    def primary(self, program: str) -> str:
        """The spelling that messages and help show, the others being accepted alike."""
        if self.server and program == SERVER:
            return self.server
        long = [flag for flag in self.flags if flag.startswith("--")]
        return (long or list(self.flags) or list(self.env))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    help: str
    words: str = ""
    """What plain words it takes, for the usage line; empty: none."""


@dataclass(frozen=True, slots=True)
class Table:
    commands: Mapping[str, Command]
    sections: Mapping[str, tuple[Row, ...]]

    def rows(self, command: str) -> Iterator[Row]:
        """The rows a command has, its own ones first."""
        every = [row for section in self.sections.values() for row in section]
        yield from (row for row in every if row.command == command)
        yield from (row for row in every if not row.command)


@cache
def load_table(path: Path | None = None) -> Table:
    path = path if path is not None else data_dir("conf") / "flags.yaml"
    # The C loader: 6 ms instead of 60 on every start, --help included.
    raw = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return read_table(raw)


def read_table(raw: Mapping[str, Any]) -> Table:
    sections = {s["title"]: tuple(_row(row) for row in s["flags"]) for s in raw["sections"]}
    return Table({name: Command(**c) for name, c in raw["commands"].items()}, sections)


TUPLES = frozenset(f.name for f in fields(Row) if str(f.type).startswith("tuple"))


def _row(raw: Mapping[str, Any]) -> Row:
    given: dict[str, Any] = {n: tuple(v) if n in TUPLES else v for n, v in raw.items()}
    return Row(**given)
