"""A rule of the schema in words: what a key takes, and what a value breaks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlxcel.config.json_types import any_of
from mlxcel.config.problems import shown

if TYPE_CHECKING:
    from jsonschema import ValidationError


def described(rule: Mapping[str, Any]) -> str:
    """`an integer, at least 0, at most 65535, in seconds`."""
    parts = [_values(rule)]
    if "minimum" in rule:
        parts.append(f"at least {rule['minimum']}")
    if "exclusiveMinimum" in rule:
        parts.append(f"greater than {rule['exclusiveMinimum']}")
    if "maximum" in rule:
        parts.append(f"at most {rule['maximum']}")
    if "not" in rule:
        parts.append(f"not {_excluded(rule['not'])}")
    if "x-unit" in rule:
        parts.append(f"in {rule['x-unit']}")
    return ", ".join(parts)


def broken(error: "ValidationError") -> str:
    """What the value breaks: `is greater than the maximum of 65535`."""
    limit: Any = error.validator_value
    match error.validator:
        case "type":
            return f"is not {any_of(limit)}"
        case "enum":
            return f"is not one of {_listed(limit)}"
        case "const":
            return f"is not {shown(limit)}"
        case "not":
            return f"must not be {_excluded(limit)}"
        case "minimum":
            return f"is less than the minimum of {limit}"
        case "maximum":
            return f"is greater than the maximum of {limit}"
        case "exclusiveMinimum":
            return f"is not greater than {limit}"
        case "minLength" | "minItems" if limit == 1:
            return "is empty"
        case "maxLength":
            return f"is longer than {limit} characters"
        case "pattern":
            return f"does not match the pattern {limit}"
        case "format":
            return f"is not a valid {limit}"
        case _:
            return str(error.message)


def _values(rule: Mapping[str, Any]) -> str:
    if "enum" in rule:
        return f"one of {_listed(rule['enum'])}"
    if "const" in rule:
        return f"always {shown(rule['const'])}"
    return any_of(rule["type"]) if "type" in rule else "any value"


def _excluded(rule: Mapping[str, Any]) -> str:
    """What a `not` names: one value, or a range of numbers."""
    return shown(rule["const"]) if "const" in rule else f"{rule['minimum']} to {rule['maximum']}"


def _listed(values: list[Any]) -> str:
    return ", ".join(shown(value) for value in values)
