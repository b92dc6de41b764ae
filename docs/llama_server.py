"""llama-server's options and what becomes of each here: `docs/llama_server.yaml` has its names,
`conf/flags.yaml` the answer, so that the page says what the program does."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from mlxcel.config.flag_table import Row, Table, load_table

FACTS = Path(__file__).resolve().parent / "llama_server.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of llama-server, or several of one fate."""

    flags: tuple[str, ...]
    variables: tuple[str, ...]
    difference: str
    """How ours differs; empty: not at all, as far as it works."""


def options() -> Mapping[str, tuple[Option, ...]]:
    raw = yaml.safe_load(FACTS.read_text("utf-8"))
    return {
        title: tuple(_option(names, difference) for names, difference in rows.items())
        for title, rows in raw.items()
    }


def row_of(table: Table, flag: str) -> Row:
    """Raises KeyError for a flag the program does not know."""
    for row in table.rows("serve"):
        if flag in (*row.flags, *row.negated):
            return row
    raise KeyError(flag)


def option_rows(rows: tuple[Option, ...]) -> Iterator[tuple[str, ...]]:
    """Option, variables, verdict, and how or why."""
    table = load_table()
    for option in rows:
        row = row_of(table, option.flags[0])
        names = ", ".join(f"`{name}`" for name in option.flags)
        variables = ", ".join(f"`{name}`" for name in option.variables)
        yield names, variables, *_verdict(row, option)


def own_rows() -> Iterator[tuple[str, ...]]:
    """Flags that llama-server lacks: spellings and key."""
    theirs = {flag for rows in options().values() for option in rows for flag in option.flags}
    for row in load_table().rows("serve"):
        own = [flag for flag in (*row.flags, *row.negated) if flag not in theirs]
        if own:
            yield ", ".join(f"`{flag}`" for flag in own), _what(row)


def _option(names: str, difference: str | None) -> Option:
    words = names.split()
    return Option(
        flags=tuple(word for word in words if word.startswith("-")),
        variables=tuple(word for word in words if not word.startswith("-")),
        difference=difference or "",
    )


def _verdict(row: Row, option: Option) -> tuple[str, str]:
    if row.type == "inert" and not row.neutral:
        return "no effect", row.reason
    if row.type in ("inert", "refused"):
        but = " (values that ask for nothing are taken)" if row.has_neutral_value else ""
        return "refused", row.reason + but
    return ("different", option.difference) if option.difference else ("same", _what(row))


def _what(row: Row) -> str:
    if row.type in ("inert", "refused"):
        return f"{'no effect' if row.type == 'inert' else 'refused'}: {row.reason}"
    return f"`{row.key}`" if row.key else row.help
