"""Reading a command line in a test: the real table, or one of a single row."""

import pytest

from mlxcel.config.flag_table import Table, read_table
from mlxcel.config.flags import Invocation, UsageError, parse


def parsed(
    *argv: str, program: str = "mlxcel", table: Table | None = None, **env: str
) -> Invocation:
    return parse(argv, env, program=program, table=table)


def values(invocation: Invocation) -> dict[str, object]:
    return {setting.key: setting.value for setting in invocation.asked.values}


def problems(*argv: str, table: Table | None = None, **env: str) -> list[tuple[str, str, str]]:
    with pytest.raises(UsageError) as caught:
        parse(argv, env, table=table)
    return [(p.key, p.rule, p.hint) for p in caught.value.problems]


def one_row(**row: object) -> Table:
    return read_table(
        {
            "commands": {"serve": {"help": "x"}},
            "sections": [{"title": "x", "flags": [{"help": "x", **row}]}],
        }
    )
