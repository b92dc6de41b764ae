"""The help pages, written from `conf/flags.yaml` and the folders of `conf/`.

Reads two YAML files and lists folders; composes nothing, so that it answers at once.
"""

import os
from collections.abc import Iterator
from textwrap import wrap

import yaml

from mlxcel.config import layers
from mlxcel.config.flag_table import SERVER, Row, Table, load_table
from mlxcel.config.paths import data_dir, user_dirs

_WIDTH = 100
_INDENT = 26
_METAVAR = {
    "int": "N",
    "float": "X",
    "str": "TEXT",
    "list": "A,B",
    "texts": "TEXT",
    "json": "JSON",
    "file": "FILE",
    "size": "SIZE",
    "secret": "TEXT",
    "choice": "NAME",
}


def page(program: str, command: str | None) -> str:
    """The page of a command, or of the program."""
    table = load_table()
    if command is None:
        return "\n".join(_program(table, program))
    return "\n".join(_command(table, program, command))


def _program(table: Table, program: str) -> Iterator[str]:
    commands = "" if program == SERVER else "[command] "
    yield f"usage: {program} {commands}[flags] [key=value ...]"
    yield ""
    yield "  Starts an inference server from a declarative configuration:"
    yield f"    {program}                                  serve the embedded SmolLM2"
    yield f"    {program} model=qwen3 server.port=8080     choose an option, set a key"
    yield f"    {program} --model owner/name --port 8080   the same kind of thing as flags"
    yield f"    {program} recipes=laptop                   a whole deployment from recipes/"
    if commands:
        yield ""
        yield "commands"
        for name, command in table.commands.items():
            yield from _entry(f"{name} {command.words}".rstrip(), command.help)
    yield ""
    yield from _groups()
    yield from _sections(table, "serve", program)


def _command(table: Table, program: str, name: str) -> Iterator[str]:
    command = table.commands[name]
    words = f"{command.words} " if command.words else ""
    yield f"usage: {program} {name} {words}[flags] [key=value ...]"
    yield ""
    yield f"  {command.help}"
    yield ""
    yield from _groups()
    yield from _sections(table, name, program)


def _groups() -> Iterator[str]:
    """Each group with its options, the default marked."""
    search = layers.search_path(user_dirs((), os.environ))
    conf = yaml.load((data_dir("conf") / "config.yaml").read_bytes(), yaml.CSafeLoader)
    entries = [entry for entry in conf["defaults"] if isinstance(entry, dict)]
    defaults = {group: option for entry in entries for group, option in entry.items()}
    yield "groups: group=option (* is chosen when nothing else is)"
    for group in sorted(defaults):
        marked = (
            f"{option}*" if option == defaults[group] else option
            for option in layers.options(group, search)
        )
        yield from _entry(group, "  ".join(marked))


def _sections(table: Table, command: str, program: str) -> Iterator[str]:
    shown = set(map(id, table.rows(command)))
    for title, rows in table.sections.items():
        yield ""
        yield title
        for row in rows:
            if id(row) in shown:
                yield from _row(row, program)
    yield ""
    yield "Any key can be set as key=value; `mlxcel config explain` lists them all."


def _row(row: Row, program: str) -> Iterator[str]:
    primary = row.primary(program)
    names = [*row.flags, *row.negated] or [_variable(name) for name in row.env]
    names = [primary, *(name for name in names if name != primary)] if row.flags else names
    value = f" {_metavar(row)}" if row.flags and row.takes_value else ""
    yield from _entry(", ".join(names) + value, _text(row))


def _text(row: Row) -> str:
    if row.type in ("inert", "refused"):
        return f"{_fate(row)}: {row.reason}"
    facts = [row.key.replace("@", "")] if row.key else []
    if row.flags and row.env:
        facts.append("env " + ", ".join(row.env))
    return f"{row.help} [{'; '.join(facts)}]" if facts else row.help


def _fate(row: Row) -> str:
    if row.has_neutral_value:
        return "accepted as long as it changes nothing"
    return "accepted, no effect" if row.type == "inert" else "refused"


def _metavar(row: Row) -> str:
    return row.metavar or "|".join(row.allowed) or _METAVAR.get(row.type, "VALUE")


def _variable(name: str) -> str:
    return name if "=" in name else f"{name}=..."


def _entry(left: str, right: str) -> Iterator[str]:
    """Two columns; a left side that is too wide gets its own line."""
    lines = wrap(right, _WIDTH - _INDENT) or [""]
    head = f"  {left}"
    if len(head) >= _INDENT:
        yield from wrap(
            left, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    else:
        yield f"{head:<{_INDENT}}{lines.pop(0)}"
    yield from (f"{'':<{_INDENT}}{line}" for line in lines)
