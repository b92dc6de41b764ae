"""Laying values on a composed tree, and making it plain."""

import re
from collections.abc import Mapping
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from mlxcel.config.asked import REMOVED, Setting
from mlxcel.config.keys import read
from mlxcel.config.problems import HIDDEN
from mlxcel.config.schema import additive, has_keys
from mlxcel.config.words import hides_secret
from mlxcel.core.problem import Problem

_INTERPOLATION = re.compile(r"(\\*)\$\{")


def lay(tree: DictConfig, setting: Setting) -> Problem | None:
    """Put one value into the tree; an unknown key is added, and found by `validate`."""
    try:
        if setting.value is REMOVED:
            return _remove(tree, setting)
        value, merge = _combined(tree, setting)
        with open_dict(tree):
            OmegaConf.update(tree, setting.key, value, merge=merge, force_add=True)
    except OmegaConfBaseException as error:
        return _problem(setting, f"cannot be set: {str(error).splitlines()[0]}")
    return None


def literal(value: Any) -> Any:
    """The value so that OmegaConf reads `${` in it as text."""
    match value:
        case str():
            return _INTERPOLATION.sub(lambda m: m.group(1) * 2 + r"\${", value)
        case list():
            return [literal(item) for item in value]
        case dict():
            return {name: literal(item) for name, item in value.items()}
        case _:
            return value


def resolved(tree: DictConfig) -> tuple[dict[str, Any], list[Problem]]:
    """The tree as plain values. A reference that leads nowhere is a problem, and left out."""
    problems: list[Problem] = []
    while True:
        try:
            plain = OmegaConf.to_container(tree, resolve=True, throw_on_missing=False)
            return cast(dict[str, Any], plain), problems
        except InterpolationResolutionError as error:
            key = str(error.full_key)
            raw = OmegaConf.to_container(tree, resolve=False)
            # A reference inside a list is shown with the whole list.
            value = read(cast(dict[str, Any], raw), key.partition("[")[0])
            problems.append(Problem(key=key, value=value, rule=str(error).splitlines()[0]))
            with open_dict(tree):
                OmegaConf.update(tree, key, None, merge=False)


def _remove(tree: DictConfig, setting: Setting) -> Problem | None:
    parent_key, _, name = setting.key.rpartition(".")
    parent = OmegaConf.select(tree, parent_key) if parent_key else tree
    if not isinstance(parent, DictConfig) or name not in parent:
        return _problem(setting, "cannot be removed: there is no such key")
    with open_dict(parent):
        del parent[name]
    return None


def _combined(tree: DictConfig, setting: Setting) -> tuple[Any, bool]:
    """The value to lay, and whether it is merged: sections are, free mappings are replaced."""
    value: Any = setting.value
    if setting.key in additive() and isinstance(value, list):
        there = OmegaConf.select(tree, setting.key)
        kept = list(there) if OmegaConf.is_list(there) else []
        return [*kept, *(item for item in value if item not in kept)], False
    return value, isinstance(value, Mapping) and has_keys(setting.key)


def _problem(setting: Setting, rule: str) -> Problem:
    value = None if setting.value is REMOVED else setting.value
    if hides_secret(setting.key, value):
        value, rule = HIDDEN, "cannot be set"
    return Problem(key=setting.key, value=value, rule=rule, source=setting.source)
