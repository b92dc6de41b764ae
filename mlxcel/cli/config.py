"""`mlxcel config`: the composed tree; `mlxcel config explain`: each key, its rule and source."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from mlxcel.config.asked import Asked, Composed
from mlxcel.config.keys import is_live, leaves
from mlxcel.config.problems import HIDDEN, ConfigErrors, shown
from mlxcel.core.problem import Problem


def run(asked: Asked, words: Sequence[str]) -> int:
    """`words`: nothing, or `explain` and any number of keys and sections.

    Raises ConfigErrors for a tree that is wrong, and for a key that does not exist.
    """
    from mlxcel.config.compose import compose
    from mlxcel.config.validate import validate

    command, keys = (words[0], words[1:]) if words else ("", ())
    if command not in ("", "explain"):
        raise ConfigErrors([_unknown_command(command)])
    composed = compose(asked)
    if problems := validate(composed):
        raise ConfigErrors(problems)
    print(explained(composed, keys) if command else tree_text(composed.tree), end="")
    return 0


def tree_text(tree: Mapping[str, Any]) -> str:
    """The tree as YAML: what a user may set, secrets masked."""
    return yaml.safe_dump(_public(tree), sort_keys=False, allow_unicode=True, width=100)


def explained(composed: Composed, keys: Sequence[str]) -> str:
    """One block per key asked for, or per key there is."""
    from mlxcel.config.provenance import sources

    values = dict(leaves(_public(composed.tree)))
    wanted = _wanted(keys, values)
    where = sources(composed)
    return "\n".join(_block(composed, key, values[key], where) for key in wanted)


def _wanted(keys: Sequence[str], values: Mapping[str, object]) -> list[str]:
    found: dict[str, None] = {}
    problems = []
    for key in keys:
        below = [leaf for leaf in values if leaf == key or leaf.startswith(f"{key}.")]
        if not below:
            problems.append(_unknown_key(key, values))
        found.update(dict.fromkeys(below))
    if problems:
        raise ConfigErrors(problems)
    return list(found) if keys else list(values)


def _block(composed: Composed, key: str, value: object, where: Mapping[str, str]) -> str:
    from mlxcel.config.provenance import source_of
    from mlxcel.config.rules import described
    from mlxcel.config.schema import rule_of, tree_schema

    rule = rule_of(tree_schema(composed.tree), key)
    lines = [f"{key} = {shown(value)}"]
    if rule is not None:
        lines += [rule["description"]] if "description" in rule else []
        while_running = ", changeable while running" if is_live(key) else ""
        lines.append(f"rule    {described(rule)}{while_running}")
    lines.append(f"source  {source_of(where, key)}")
    return "\n  ".join(lines) + "\n"


def _public(tree: Mapping[str, Any]) -> dict[str, Any]:
    from mlxcel.config.schema import secrets

    return {name: _masked(name, below, secrets()) for name, below in tree.items()}


def _masked(key: str, value: Any, secret: frozenset[str]) -> Any:
    if key in secret:
        return HIDDEN if value else value
    if not isinstance(value, Mapping):
        return value
    # A node block is how a section is built: nothing to set, and `mlxcel graph` shows it.
    names = (name for name in value if name != "node")
    return {name: _masked(f"{key}.{name}", value[name], secret) for name in names}


def _unknown_key(key: str, values: Mapping[str, object]) -> Problem:
    from mlxcel.config.validate import nearest_key

    near = nearest_key(key, values)
    hint = f"did you mean {near}?" if near else "all of them: mlxcel config explain"
    return Problem(key=key, value=None, rule="unknown key", hint=hint)


def _unknown_command(command: str) -> Problem:
    hint = "write: mlxcel config, or mlxcel config explain [KEY ...]"
    return Problem(key=f"config {command}", value=None, rule="unknown command", hint=hint)
