"""A configuration that cannot run, as one error that shows every reason in a table."""

import json
from collections.abc import Sequence

from mlxcel.core.errors import MlxcelError
from mlxcel.core.problem import Problem

MISSING = "???"
"""How YAML says that a value is required."""
HIDDEN = "[redacted]"
"""What is shown of a secret."""


class ConfigErrors(MlxcelError):
    """Nothing is started; exit code 2."""

    code = "config"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(render_problems(problems))
        self.problems = list(problems)


def render_problems(problems: Sequence[Problem]) -> str:
    """One line per problem, in columns: what is set, what is wrong with it, where it was set."""
    rows = [(_what(p), _why(p), p.source) for p in problems]
    first = max((len(row[0]) for row in rows), default=0)
    second = max((len(row[1]) for row in rows), default=0)
    head = f"conf: {len(rows)} problem{'' if len(rows) == 1 else 's'}"
    return "\n".join([head, *(f"  {a:<{first}}  {b:<{second}}  {c}".rstrip() for a, b, c in rows)])


def shown(value: object) -> str:
    """A value as the user would type it in YAML, cut to one short line."""
    if isinstance(value, str):
        text = value if value else '""'
    elif value is None or isinstance(value, bool | int | float):
        text = json.dumps(value)
    else:
        text = json.dumps(value, default=str)
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


def _what(problem: Problem) -> str:
    if problem.value is None and not problem.rule.startswith("is "):
        return problem.key
    return f"{problem.key} = {shown(problem.value)}"


def _why(problem: Problem) -> str:
    return f"{problem.rule}; {problem.hint}" if problem.hint else problem.rule
