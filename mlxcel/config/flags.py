"""argv and environment as what they ask for, by `conf/flags.yaml`.

Knows flags, variables and their precedence. Does not know whether a key exists or what its
bounds are: that is found out on the composed tree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlxcel.config.argv import Found, Line, chosen_groups
from mlxcel.config.asked import Asked, Origin, Setting
from mlxcel.config.draft_flags import settled
from mlxcel.config.flag_table import BOOLEANS, SERVER, Row, Table, load_table
from mlxcel.config.flag_values import read_variable, switched_off
from mlxcel.config.problems import HIDDEN, ConfigErrors
from mlxcel.core.problem import Problem


class UsageError(ConfigErrors):
    """The command line or a variable cannot be read; exit code 2."""

    code = "usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One run of the program, as asked."""

    command: str
    words: tuple[str, ...] = ()
    """Plain words after the command: `explain`, `server.port`."""
    options: Mapping[str, object] = field(default_factory=dict)
    """The command's own flags, with their defaults."""
    asked: Asked = field(default_factory=Asked)
    warnings: tuple[str, ...] = ()


def parse(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str = "mlxcel",
    table: Table | None = None,
) -> Invocation:
    """Raises UsageError with every problem of the command line and the variables at once.

    Asked for help or the version, it answers that and looks at nothing else.
    """
    table = table if table is not None else load_table()
    command, rest = _command(argv, table, program)
    line = Line(table=table, command=command, program=program)
    line.read(rest)
    options = {**_defaults(table, command), **line.options}
    if "help" in options or "version" in options:
        return Invocation(command=command, options=options)
    found = [*_environment(table, command, line, environ), *line.found]
    line.problems.extend(_refused_variables(table, command, environ))
    winners = _winners(found, line)
    _refuse_two_choices(winners, line)
    winners = settled(winners, line)
    _warn_alone(winners, line)
    if line.problems:
        raise UsageError(line.problems)
    return Invocation(
        command=command,
        words=tuple(line.words),
        options=options,
        asked=_asked(winners, line),
        warnings=tuple(line.warnings),
    )


def _command(argv: Sequence[str], table: Table, program: str) -> tuple[str, Sequence[str]]:
    if argv and program != SERVER and argv[0] in table.commands:
        return argv[0], argv[1:]
    return "serve", argv


def _defaults(table: Table, command: str) -> dict[str, object]:
    own = (row for row in table.rows(command) if row.command == command and row.option)
    return {row.option: row.default for row in own}


def _environment(
    table: Table, command: str, line: Line, environ: Mapping[str, str]
) -> Iterator[Found]:
    """What variables set, where the command line sets nothing else, strongest row last."""
    on_line = {found.row.key for found in line.found}
    words = chosen_groups(line.overrides)
    for row in reversed(list(table.rows(command))):
        outdone = (row.key in on_line and not row.env_wins) or any(
            group in words for group in row.groups
        )
        if row.key and (row.adds or not outdone):
            yield from _variables(row, line, environ)


def _variables(row: Row, line: Line, environ: Mapping[str, str]) -> Iterator[Found]:
    for name, text, negated in _set(row, environ):
        origin = Origin.ENVIRONMENT
        try:
            value = switched_off(row) if negated else read_variable(row, text)
        except ValueError as error:
            if row.unreadable is None:
                said = HIDDEN if row.type == "secret" else text
                source = origin.source(name)
                line.problems.append(Problem(key=name, value=said, rule=str(error), source=source))
                return
            value = row.unreadable
            line.warnings.append(f"{name}: {text} {error}; {value} is used")
        if row.asks_nothing(text):
            return
        line.warn(row, value=value, text=text, spelling=name)
        yield Found(row=row, value=value, origin=origin, spelling=name)
        if not row.adds:
            return


def _refused_variables(table: Table, command: str, environ: Mapping[str, str]) -> Iterator[Problem]:
    """A variable that asks for what cannot be done, said as its flag says it."""
    for row in table.rows(command):
        for name in row.env if row.type == "refused" else ():
            if (text := environ.get(name, "")) and not row.asks_nothing(text):
                source = Origin.ENVIRONMENT.source(name)
                rule = f"cannot work here: {row.reason}"
                yield Problem(key=name, value=text, rule=rule, source=source)


def _set(row: Row, environ: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    """The variables of a row that are set, with whether it is the negated name that is."""
    for name in row.env:
        name, _, only = name.partition("=")
        if row.type in BOOLEANS and name.startswith("LLAMA_ARG_"):
            opposite = name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1)
            if environ.get(opposite, ""):
                yield opposite, environ[opposite], True
        text = environ.get(name, "")
        is_set = name in environ if row.presence else bool(text)
        if is_set and only in ("", text) and not _says_no(row, text):
            yield name, text, False


def _says_no(row: Row, text: str) -> bool:
    """`MLXCEL_NO_PROGRESS=0` asks for nothing."""
    return (
        row.type == "no-flag"
        and not row.presence
        and text.lower() in ("0", "false", "off", "disabled")
    )


def _winners(found: Iterable[Found], line: Line) -> list[Found]:
    """One value per key, or several where all sources add up; lowest precedence first."""
    best: dict[str, Found] = {}
    added: list[Found] = []
    for item in _asking(_joined(found)):
        rival = best.get(item.row.key)
        if item.row.adds:
            added.append(item)
        elif rival is not None and _contradict(item, rival):
            line.problems.append(_two_choices(item, rival))
        elif rival is None or _beats(item, rival):
            best[item.row.key] = item
            line.overruled(loser=rival, winner=item)
        else:
            line.overruled(loser=item, winner=rival)
    return sorted([*best.values(), *added], key=lambda item: item.on_line)


def _beats(item: Found, rival: Found) -> bool:
    """`item` comes from a source that is as strong as the rival's, or stronger."""
    if item.row is rival.row and item.row.env_wins:
        return rival.on_line or not item.on_line
    return item.row.rank >= rival.row.rank


def _contradict(item: Found, rival: Found) -> bool:
    """Two flags, or two variables, that choose differently in one group."""
    is_choice = item.row.key.startswith("@") and item.row is not rival.row
    return is_choice and item.value != rival.value  # the line has outdone the variables before


def _two_choices(item: Found, rival: Found) -> Problem:
    group = item.row.key[1:]
    return Problem(
        key=item.spelling,
        value=None,
        rule=f"chooses {group}={item.value}, but {rival.spelling} chooses {group}={rival.value}",
        hint="give one of the two",
        source=item.source,
    )


def _asking(found: Sequence[Found]) -> list[Found]:
    """Without switches that were taken back later on, and those that ask for nothing."""
    last = {(id(item.row), item.on_line): item for item in found}
    return [
        item
        for item in found
        if item.row.type not in BOOLEANS
        or (item is last[id(item.row), item.on_line] and item.value is not None)
    ]


def _joined(found: Iterable[Found]) -> list[Found]:
    """A repeatable row given several times in one place is one list, with the other repeatable
    rows of its key, in the order of the words."""
    joined: list[Found] = []
    places: dict[tuple[str, str], int] = {}
    for item in found:
        place = places.setdefault(
            (item.row.key, "" if item.on_line else item.spelling), len(joined)
        )
        if item.row.repeats and place < len(joined):
            joined[place] = joined[place].plus(item)
        else:
            joined.append(item)
    return joined


def _refuse_two_choices(winners: Iterable[Found], line: Line) -> None:
    words = chosen_groups(line.overrides)
    for item in winners:
        for group, option in _choices(item):
            if item.on_line and words.get(group, option) != option:
                line.problems.append(
                    Problem(
                        key=f"{group}={words[group]}",
                        value=None,
                        rule=f"{item.spelling} chooses {group}={option}",
                        hint="give one of the two",
                        source=item.source,
                    )
                )


def _warn_alone(winners: Sequence[Found], line: Line) -> None:
    """Says what a flag does not do, where the flag that does it was not given."""
    keys = {item.row.key for item in winners}
    for item in winners:
        alone = item.row.alone
        if alone and alone["key"] not in keys:
            line.warnings.append(f"{item.spelling}: {alone['text']}")


def _choices(item: Found) -> list[tuple[str, str]]:
    if item.row.key.startswith("@"):
        return [(item.row.key[1:], str(item.value))]
    return list(item.row.picks.items())


def _asked(winners: Sequence[Found], line: Line) -> Asked:
    settings = (
        Setting(
            key=item.row.key,
            value=item.value,
            origin=item.origin,
            name=item.spelling,
            kinds=item.row.kinds,
        )
        for item in winners
        if not item.row.key.startswith("@")
    )
    suggested = (choice for item in winners for choice in item.row.suggests.items())
    chosen = (choice for item in winners for choice in _choices(item))
    asks: Mapping[str, list[Any]] = line.asks
    return Asked(
        overrides=tuple(line.overrides),
        choices=(*suggested, *chosen),  # of one group the last counts
        values=tuple(settings),
        recipes=tuple(asks["recipes"]),
        config_dirs=tuple(Path(folder) for folder in asks["config_dirs"]),
    )
