"""The types of JSON Schema, as we read them: 7.0 and true are no integers."""

import math
from collections.abc import Mapping

WORDS = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def any_of(types: str | list[str]) -> str:
    """`an integer or null`."""
    return " or ".join(WORDS[name] for name in listed(types))


def listed(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def is_of(value: object, kind: str) -> bool:
    """NaN and infinity count as numbers here: `is_finite` tells."""
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, Mapping)
        case _:
            return value is None


def is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
