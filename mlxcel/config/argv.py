"""The words of a command line, sorted: flags with their values, Hydra words, plain words.

Collects problems and warnings on the way and never stops at the first.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from mlxcel.config.asked import Origin
from mlxcel.config.flag_table import SERVER, Row, Table
from mlxcel.config.flag_values import read_switch, read_value
from mlxcel.config.problems import HIDDEN
from mlxcel.core.problem import Problem

_OVERRIDE = re.compile(r"~[A-Za-z_].*|\+{0,2}[A-Za-z_][\w./@:-]*=.*", re.DOTALL)
_CHOICE = re.compile(r"(?P<group>[A-Za-z_][\w/]*)=(?P<option>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A row that something sets, and where."""

    row: Row
    value: object
    origin: Origin
    spelling: str
    """The flag or variable."""

    @property
    def on_line(self) -> bool:
        return self.origin is Origin.COMMAND_LINE

    @property
    def source(self) -> str:
        return self.origin.source(self.spelling)

    def plus(self, other: "Found") -> "Found":
        """The list of both; an empty one clears what was before it."""
        assert isinstance(self.value, list)
        assert isinstance(other.value, list)
        return replace(self, value=[*self.value, *other.value] if other.value else [])


def chosen_groups(overrides: Sequence[str]) -> dict[str, str]:
    """The group choices, and other words without a dot, that Hydra words make."""
    matches = (_CHOICE.fullmatch(word) for word in overrides)
    return {match["group"]: match["option"] for match in matches if match}


@dataclass(slots=True, kw_only=True)
class Line:
    """Reads one command line; mutable, owned by the call of `parse` that made it."""

    table: Table
    command: str
    program: str
    words: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    options: dict[str, object] = field(default_factory=dict)
    asks: dict[str, list[object]] = field(
        default_factory=lambda: {"recipes": [], "config_dirs": []}
    )
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _rows: dict[str, Row] = field(init=False)
    _left: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._rows = {}
        for row in self.table.rows(self.command):
            for spelling in (*row.flags, *row.negated):
                self._rows.setdefault(spelling, row)

    def read(self, argv: Sequence[str]) -> None:
        self._left = list(argv)
        while self._left:
            word = self._left.pop(0)
            if word == "--":
                break
            if _is_flag(word):
                self._flag(word)
            else:
                self._word(word)
        for word in self._left:
            self._word(word)

    def warn(self, row: Row, *, value: object, text: str | None, spelling: str) -> None:
        """Notes a value that is not used as it was given."""
        said = next((why for word, why in row.warn.items() if str(word) == text), None)
        if said is not None:
            self.warnings.append(f"{spelling}: {said}")

    def overruled(self, *, loser: Found | None, winner: Found) -> None:
        """Notes a flag that has no effect, unless it says the same."""
        if loser is None or loser.value == winner.value:
            return
        if loser.row is winner.row and loser.on_line is winner.on_line:
            return
        self.warnings.append(f"{loser.spelling} has no effect: {winner.spelling} beats it")

    def _word(self, word: str) -> None:
        if _OVERRIDE.fullmatch(word):
            self.overrides.append(word)
        elif self.command in self.table.commands and self.table.commands[self.command].words:
            self.words.append(word)
        else:
            self._refuse(word, None, "neither a flag nor a key=value", self._meant(word))

    def _flag(self, word: str) -> None:
        spelling, equals, after = word.partition("=")
        text = after if equals else None
        row = self._rows.get(spelling)
        if row is None:
            self._swallow(text)
            self._refuse(spelling, None, "unknown flag", self._nearest(spelling))
        elif row.type == "refused" and not (row.takes and row.neutral):
            if row.takes and text is None:
                self._value(spelling)
            if text is None or not row.asks_nothing(text):
                self._refuse(spelling, None, f"cannot work here: {row.reason}")
        elif row.takes_value:
            self._valued(row, spelling, self._value(spelling) if text is None else text)
        else:
            self._switch(row, spelling, text)

    def _valued(self, row: Row, spelling: str, text: str | None) -> None:
        if text is None:
            self._refuse(spelling, None, "needs a value", f"write {spelling}=VALUE")
        elif row.type in ("inert", "refused"):
            for _ in range(row.count - 1):
                self._value(spelling)
            if row.neutral and not row.asks_nothing(text):
                self._refuse(spelling, text, f"is not supported: {row.reason}")
        elif not row.asks_nothing(text):
            try:
                value = read_value(row, text)
            except ValueError as error:
                said = HIDDEN if row.type == "secret" else text
                self._refuse(spelling, said, str(error))
                return
            self._keep(row, spelling, value, text)

    def _switch(self, row: Row, spelling: str, text: str | None) -> None:
        if row.type == "inert":
            return
        try:
            value = read_switch(row, text, negated=spelling in row.negated)
        except ValueError as error:
            self._refuse(spelling, text, str(error))
            return
        self._keep(row, spelling, value, text)

    def _keep(self, row: Row, spelling: str, value: object, text: str | None) -> None:
        if row.option:
            self.options[row.option] = value
        elif row.ask:
            assert isinstance(value, list)
            self.asks[row.ask] += value
        else:
            self.warn(row, value=value, text=text, spelling=spelling)
            origin = Origin.COMMAND_LINE
            self.found.append(Found(row=row, value=value, origin=origin, spelling=spelling))

    def _value(self, spelling: str) -> str | None:
        """The next word, unless it is a flag we know: then the value was forgotten."""
        if not self._left or self._left[0].partition("=")[0] in self._rows:
            return None
        return self._left.pop(0)

    def _swallow(self, text: str | None) -> None:
        """Drops what may be the value of an unknown flag, so that it is no second problem."""
        following = self._left[0] if self._left else ""
        if text is None and following and not (_is_flag(following) or "=" in following):
            self._left.pop(0)

    def _refuse(self, key: str, value: object, rule: str, hint: str = "") -> None:
        source = Origin.COMMAND_LINE.source(key)
        self.problems.append(Problem(key=key, value=value, rule=rule, hint=hint, source=source))

    def _nearest(self, spelling: str) -> str:
        name = spelling.lstrip("-")
        if "." in name:
            return f"did you mean {name}=VALUE?"
        near = get_close_matches(spelling.replace("_", "-"), self._rows)
        working = [flag for flag in near if self._rows[flag].type not in ("inert", "refused")]
        guesses = [*working, *near]
        return f"did you mean {guesses[0]}?" if guesses else f"see {self.program} --help"

    def _meant(self, word: str) -> str:
        if self.program == SERVER:
            return f"did you mean --model {word}?"
        if word in self.table.commands:
            return f"a command comes first: {self.program} {word}"
        near = get_close_matches(word, self.table.commands, n=1)
        if near:
            return f"did you mean {near[0]}?"
        commands = ", ".join(self.table.commands)
        return f"the commands are {commands}; a model is named by --model NAME"


def _is_flag(word: str) -> bool:
    """Whether it looks like one; `-1` does not."""
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit()
