"""Whether a value fits a live setting, in the words a client is told.

The rule is the key's JSON Schema; the message is ours, since a client sent one value and
wants one reason. A refused value raises ValueError with that reason.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlxcel.config.json_types import any_of, is_finite, is_of, listed
from mlxcel.config.validate import violations
from mlxcel.core.language import from_config, to_config

_DEPTH = 32
"""Levels of a patched object. OmegaConf spends many Python frames on each."""
_BYTES = 64 * 1024
"""A patched value as JSON. It is kept, logged, hashed and sent with every answer about settings."""
_VALUES = 1000
"""Values inside a patched object. OmegaConf spends 0.1 ms on each, and the front waits."""


def canonical(name: str, value: object, rule: Mapping[str, Any]) -> Any:
    """The value as it is kept: a number is a float, however it was written."""
    types = listed(rule["type"])
    if not any(is_of(value, kind) for kind in types):
        _refuse_beyond(name, value, rule)
        raise ValueError(f"{name} wants {any_of(types)}, got {_seen(value)}")
    _refuse_markup(name, value, _DEPTH)
    _refuse_bulk(name, value)
    if value is None:
        return None
    if "number" in types and "integer" not in types and not isinstance(value, str):
        value = _double(name, value)
    _bounds(name, value, rule)
    # A form knows the words for what it cannot use; a schema has patterns.
    formed = _FORMS[rule["x-form"]](name, value) if "x-form" in rule else value
    for place, broken in violations(rule, value):
        raise ValueError(f"{name}{place}: {broken}")
    return formed


def _refuse_beyond(name: str, value: object, rule: Mapping[str, Any]) -> None:
    """An integer too large for the JSON parser arrives as a float: its size is what is wrong."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) >= 2**63
    if is_whole and "integer" in listed(rule["type"]):
        _bounds(name, value, {"minimum": -(2**63), "maximum": 2**64 - 1, **rule})


def _seen(value: object) -> str:
    kind = next((kind for kind in _SEEN if is_of(value, kind)), type(value).__name__)
    return f"number {value}" if kind == "number" else kind


def _language(name: str, value: Any) -> dict[str, Any]:
    """With every key there is, and codes in lower case."""
    try:
        return to_config(from_config(value))
    except ValueError as error:
        said = str(error)
        raise ValueError(said if said.startswith(name) else f"{name}: {said}") from error


_FORMS: Mapping[str, Callable[[str, Any], Any]] = {"language": _language}
"""What a schema's `x-form` asks for: one form for all ways to say the same."""
_SEEN = ("null", "boolean", "number", "string", "array", "object")


def _double(name: str, value: Any) -> float:
    try:
        double = float(value)
    except OverflowError:
        double = math.inf
    if not is_finite(double):
        raise ValueError(f"{name} must be finite")
    return double


def _bounds(name: str, value: object, rule: Mapping[str, Any]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, above = rule.get("minimum"), rule.get("exclusiveMinimum")
    high = rule.get("maximum")
    if (above is not None and value <= above) or (low is not None and value < low):
        zero = above == 0 or (low == 1 and isinstance(value, int))
        least = "above zero" if zero else f"above {above}" if low is None else f"at least {low}"
        raise ValueError(f"{name} must be {least}")
    if high is not None and value > high:
        raise ValueError(f"{name} must be at most {high}")


def _refuse_bulk(name: str, value: object) -> None:
    """Only after the depth is known: both walk all the way down."""
    if _count(value) > _VALUES:
        raise ValueError(f"{name} holds more than {_VALUES} values")
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)
    if len(text.encode("utf-8", "surrogatepass")) > _BYTES:
        raise ValueError(f"{name} is larger than {_BYTES} bytes as JSON")


def _count(value: object) -> int:
    """The values inside an object or list, at every level."""
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(items, str) or not isinstance(items, Iterable):
        return 0
    return sum(1 + _count(item) for item in items)


def _refuse_markup(name: str, value: object, depth: int) -> None:
    """A patched value is data: OmegaConf must find nothing in it to resolve."""
    if depth == 0:
        raise ValueError(f"{name} is nested deeper than {_DEPTH} levels")
    if isinstance(value, str) and ("${" in value or value == "???"):
        raise ValueError(f"{name} must not contain ${{ or be ???: values are never resolved")
    if not is_finite(value):
        raise ValueError(f"{name} must be finite")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_markup(name, item, depth - 1)
    if isinstance(value, list):
        for item in value:
            _refuse_markup(name, item, depth - 1)
