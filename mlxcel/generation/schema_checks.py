"""What values inside a JSON Schema may be, for the constraint engine to get them right."""

import math
import re
from decimal import Decimal
from typing import Any

EXACT = 2**53
"""The engine computes with doubles: numbers beyond are not what they were."""

_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


class SchemaRefused(Exception):
    """`keyword` at `path`, a JSON pointer, breaks `rule`; "" where it is no single keyword."""

    def __init__(self, path: str, keyword: str, rule: str) -> None:
        place = f"{keyword} at {path}" if keyword else f"at {path}"
        super().__init__(f"{place}: {rule}")


_UNSAYABLE = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_CONTROL = re.compile(
    r"(?<!-)(?:\\x[01][0-9A-Fa-f]|\\x7[Ff]|\\u00[01][0-9A-Fa-f]|\\u007[Ff]|\\c.|\\[0ave]|\\[xu]\{)"
    r"(?!-)"
)
_CLASS = re.compile(r"(?<!\\)\[(?P<no>\^?)(?P<body>(?:\\.|[^\]\\])*)\]", re.DOTALL)
_SET_OPERATION = re.compile(r"&&|~~|--|(?<!\\)\[")


def check_text(value: str, path: str, keyword: str) -> None:
    """A text of the schema that an answer must be able to say. JSON writes control characters
    as \\uXXXX, a form that is off: with it a name could be said twice in two spellings."""
    if _UNSAYABLE.search(value):
        rule = "control characters (but \\b \\t \\n \\f \\r) and lone surrogates cannot be said"
        raise SchemaRefused(path, keyword, rule)


def check_pattern(pattern: str, path: str, keyword: str) -> None:
    """Whether the engine reads an expression as ECMA 262 does; its syntax the engine checks.
    A control character on its own would match the empty text there (llguidance 1.9.1)."""
    check_text(pattern, path, keyword)
    for found in _CLASS.finditer(pattern):
        if _SET_OPERATION.search(found["body"]):
            rule = "'&&', '--', '~~' and '[' mean sets within brackets here; escape them"
            raise SchemaRefused(path, keyword, rule)
    shown = _CLASS.sub(lambda found: "" if found["no"] else found["body"], pattern)
    if _CONTROL.search(shown):
        raise SchemaRefused(path, keyword, "control characters cannot be said")


def check_number(value: object, path: str, keyword: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaRefused(path, keyword, f"must be a number, not {value!r:.40}")
    if abs(value) > EXACT:
        raise SchemaRefused(path, keyword, f"{value!r:.40} is beyond 2^53, where numbers blur")


def factor_states(value: int | float, path: str) -> int:
    """How many states the engine needs for a `multipleOf`: one for each remainder."""
    digits = Decimal(str(value)).as_tuple().digits
    if value <= 0:
        raise SchemaRefused(path, "multipleOf", "must be greater than 0")
    return int("".join(map(str, digits)))


def with_bounds_on_multiples(node: dict[str, Any], path: str) -> dict[str, Any]:
    """The same numbers, but every bound is a multiple itself, and inclusive. The engine writes a
    number with the digits of its bounds, a multiple without needless ones: from 26.0781 on, it
    finds no way to write 26.5."""
    factor = Decimal(str(node["multipleOf"]))
    bounds = {name: Decimal(str(node[name])) / factor for name in _BOUNDS if name in node}
    least = [math.ceil(bounds[name]) for name in ("minimum",) if name in bounds]
    least += [math.floor(bounds[name]) + 1 for name in ("exclusiveMinimum",) if name in bounds]
    most = [math.floor(bounds[name]) for name in ("maximum",) if name in bounds]
    most += [math.ceil(bounds[name]) - 1 for name in ("exclusiveMaximum",) if name in bounds]
    if least and most and max(least) > min(most):
        raise SchemaRefused(path, "multipleOf", "no multiple lies within the bounds")
    fitted = {name: value for name, value in node.items() if name not in _BOUNDS}
    if least:
        fitted["minimum"] = _plain(max(least) * factor)
    if most:
        fitted["maximum"] = _plain(min(most) * factor)
    if least and most and max(least) == min(most):
        del fitted["multipleOf"]  # the one number left is one
    return fitted


def _plain(value: Decimal) -> int | float:
    return int(value) if value == int(value) else float(value)


def whole(value: object, path: str, keyword: str) -> int:
    """A count, which may be written as 2.0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value % 1 or value < 0:  # type: ignore
        raise SchemaRefused(path, keyword, f"must be a whole number from 0, not {value!r:.40}")
    count: int = int(value)  # type: ignore[call-overload]
    return count


def check_value(value: Any, path: str, keyword: str) -> None:
    """A value that an answer must be able to say; not deeper than a schema may be."""
    if isinstance(value, str):
        check_text(value, path, keyword)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        check_number(value, path, keyword)
    elif isinstance(value, list):
        for item in value:
            check_value(item, path, keyword)
    elif isinstance(value, dict):
        for name, item in value.items():
            check_text(name, path, keyword)
            check_value(item, path, keyword)
