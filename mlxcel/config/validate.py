"""Everything that is wrong with a tree, at once: types, bounds, missing and unknown keys."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlxcel.config.asked import Composed
from mlxcel.config.json_types import is_finite, is_of
from mlxcel.config.problems import HIDDEN, MISSING
from mlxcel.config.provenance import source_of, sources
from mlxcel.config.rules import broken
from mlxcel.config.schema import Schema, every_key, rule_of, tree_schema
from mlxcel.config.words import hides_secret
from mlxcel.core.problem import Problem

if TYPE_CHECKING:
    from jsonschema import ValidationError

UNSET = "needs a value"
ANOTHER = "is no key of the option that was chosen"
RECIPE_HEADER = "the first line of a recipe must be: # @package _global_"


def validate(composed: Composed) -> list[Problem]:
    """All problems of the tree, each with the place that set the value."""
    schema = tree_schema(composed.tree)
    found = [problem for error in _errors(schema, composed.tree) for problem in _problems(error)]
    unset = {key: _needed(key, schema) for key in _unset(composed.tree)}
    known = [_named(problem, composed) for problem in found if problem.key not in unset]
    return located([*unset.values(), *known], composed)


def located(problems: Sequence[Problem], composed: Composed) -> list[Problem]:
    """The problems with the place that set each value, and without secrets."""
    where = sources(composed) if problems else {}
    return [_finished(problem, where) for problem in problems]


def broken_rules(schema: Mapping[str, Any], value: object) -> list[str]:
    """What a single value breaks of a rule; the words are those of a start-up problem."""
    return [said for _, said in violations(schema, value)]


def violations(schema: Mapping[str, Any], value: object) -> list[tuple[str, str]]:
    """The same, each with the place inside the value: `.min_count`, `[0]`, or nothing."""
    return [(_inside(error.absolute_path), broken(error)) for error in _errors(schema, value)]


def nearest_key(key: str, known: Iterable[str] | None = None) -> str | None:
    """The known key most like a mistyped one; a key without its section finds the section."""
    keys = sorted(every_key() if known is None else known)
    if "." not in key:
        same = [name for name in keys if name.rpartition(".")[2] == key and ".node." not in name]
        if len(same) == 1:
            return same[0]
    near = get_close_matches(key, keys, n=1, cutoff=0.6)
    return near[0] if near else None


def _errors(schema: Mapping[str, Any], value: object) -> list["ValidationError"]:
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=["regex"])
    errors = _validator_class()(schema, format_checker=checker).iter_errors(value)
    return sorted(errors, key=lambda error: [str(step) for step in error.absolute_path])


@lru_cache(maxsize=1)
def _validator_class() -> Any:
    """JSON Schema with our numbers: 7.0 and true are no integers, NaN and infinity no numbers."""
    from jsonschema import Draft202012Validator, validators

    checker = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: is_of(value, "integer"),
            "number": lambda _, value: is_of(value, "number") and is_finite(value),
        }
    )
    extend: Any = validators.extend  # no types of its own
    return extend(Draft202012Validator, type_checker=checker)


def _problems(error: "ValidationError") -> list[Problem]:
    key = _dotted(error.absolute_path)
    rules: Any = error.schema
    value: Any = error.instance
    match error.validator:
        case "required":
            # One error per missing name: each speaks for the name its message quotes.
            name = next(n for n in rules["required"] if error.message.startswith(f"{n!r} "))
            return [_missing(_join(key, name), rules["properties"].get(name, {}))]
        case "additionalProperties":
            extra = [name for name in value if name not in rules["properties"]]
            return [p for name in extra for p in _unknown(_join(key, name), value[name])]
        case _:
            return [Problem(key=key, value=value, rule=broken(error))]


def _unset(value: object, key: str = "") -> Iterator[str]:
    """Keys that a file marks with `???`: somebody has to set them."""
    if value == MISSING:
        yield key
    elif isinstance(value, Mapping):
        for name, below in value.items():
            yield from _unset(below, _join(key, name))


def _named(problem: Problem, composed: Composed) -> Problem:
    group = problem.key.partition(".")[0]
    if problem.rule != ANOTHER or group not in composed.choices:
        return problem
    return replace(problem, rule=f"is no key of {group}={composed.choices[group]}")


def _needed(key: str, schema: Schema) -> Problem:
    rule = rule_of(schema, key)
    hint = "" if rule is None else rule.get("description", "")
    return Problem(key=key, value=None, rule=UNSET, hint=hint)


def _missing(key: str, rule: Mapping[str, Any]) -> Problem:
    if "." not in key:
        hint = f"it cannot be removed: choose an option of it ({key}=NAME), or set its keys"
        return Problem(key=key, value=None, rule="section is missing", hint=hint)
    return Problem(key=key, value=None, rule="key is missing", hint=rule.get("description", ""))


def _unknown(key: str, value: object) -> list[Problem]:
    """A mapping under an unknown key is reported leaf by leaf: each may have its own twin."""
    if key == "recipes":
        return [Problem(key=key, value=None, rule="unknown section", hint=RECIPE_HEADER)]
    if isinstance(value, Mapping) and value:
        return [p for name, below in value.items() for p in _unknown(_join(key, name), below)]
    if key in every_key():
        group = key.partition(".")[0]
        hint = f"another option of {group} has it: see mlxcel config explain {group}"
        rule = ANOTHER
        return [Problem(key=key, value=value, rule=rule, hint=hint)]
    near = nearest_key(key)
    if near is not None:
        return [Problem(key=key, value=None, rule="unknown key", hint=f"did you mean {near}?")]
    if "." not in key:
        groups = ", ".join(tree_schema({})["properties"])
        hint = f"no such group here; there are: {groups}"
        return [Problem(key=key, value=value, rule="unknown key", hint=hint)]
    return [Problem(key=key, value=None, rule="unknown key", hint="see: mlxcel config explain")]


def _finished(problem: Problem, where: Mapping[str, str]) -> Problem:
    key = problem.key
    return Problem(
        key=key,
        value=HIDDEN if hides_secret(key, problem.value) else problem.value,
        rule=problem.rule,
        hint=problem.hint,
        source=problem.source if problem.source else source_of(where, key),
    )


def _inside(path: Sequence[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _dotted(path: Sequence[str | int]) -> str:
    key = ""
    for step in path:
        key = f"{key}[{step}]" if isinstance(step, int) else _join(key, str(step))
    return key


def _join(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)
