"""Typed readers over a JSON object: each returns the value, None when absent, or raises BadField.

An explicit null counts as absent. Knows no dialect: names and bounds come from the caller.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.errors import BadField

JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)
SHOWN_CHARS = 60
ENCODER = json.JSONEncoder(ensure_ascii=False)


INTEGER = f"an integer from {-(2**63)} to {2**64 - 1}"
"""What the JSON parser keeps as one: larger ones arrive as floats."""


def _is_beyond(value: object) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) >= 2**63


def json_type(value: object) -> str:
    """The JSON word for a Python value: `string`, `array`, `null`."""
    for kind, word in JSON_TYPES:
        if isinstance(value, kind):
            return word
    return "null"


def shown(value: object) -> str:
    """A value as JSON for a message, cut short; the rest is not even encoded."""
    text = ""
    for piece in ENCODER.iterencode(value):
        text += piece
        if len(text) > SHOWN_CHARS:
            return text[:SHOWN_CHARS] + "..."
    return text


class Reader:
    """Reads the fields of one JSON object; `path` is where that object stands in the body.

    Several names mean spellings of one field: two of them in one body are refused.
    """

    def __init__(self, body: Mapping[str, Any], path: str = "") -> None:
        self.body = body
        self.path = path

    def name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def refuse(self, key: str, rule: str) -> BadField:
        """The error for a field whose value breaks `rule`; raise what this returns."""
        return BadField(self.name(key), rule)

    def pick(self, *names: str) -> tuple[str, Any]:
        """The spelling that was sent and its value; the first name and None when absent."""
        sent = [name for name in names if self.body.get(name) is not None]
        if len(sent) > 1:
            raise self.refuse(sent[1], f"is another spelling of {sent[0]}; send one of them")
        return (sent[0], self.body[sent[0]]) if sent else (names[0], None)

    def string(self, *names: str) -> str | None:
        key, value = self.pick(*names)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, value, "a string")

    def boolean(self, *names: str) -> bool | None:
        key, value = self.pick(*names)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(key, value, "a boolean")

    def integer(
        self, *names: str, minimum: int | None = None, maximum: int | None = None
    ) -> int | None:
        """7.0 and true are not integers."""
        key, value = self.pick(*names)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, value, INTEGER if _is_beyond(value) else "an integer")
        self._bounds(key, value, minimum, maximum)
        return value

    def number(
        self, *names: str, minimum: float | None = None, maximum: float | None = None
    ) -> float | None:
        key, value = self.pick(*names)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, value, "a number")
        self._bounds(key, value, minimum, maximum)
        return float(value)

    def items(self, *names: str) -> Sequence[Any] | None:
        key, value = self.pick(*names)
        if value is None or isinstance(value, list):
            return value
        raise self._wrong(key, value, "an array")

    def mapping(self, *names: str) -> Mapping[str, Any] | None:
        key, value = self.pick(*names)
        if value is None or isinstance(value, dict):
            return value
        raise self._wrong(key, value, "an object")

    def strings(self, *names: str) -> tuple[str, ...] | None:
        """A string or an array of strings; one string is an array of one."""
        key, value = self.pick(*names)
        if value is None:
            return None
        entries = [value] if isinstance(value, str) else value
        if not isinstance(entries, list) or not all(isinstance(e, str) for e in entries):
            raise self._wrong(key, value, "a string or an array of strings")
        return tuple(entries)

    def nested(self, key: str) -> "Reader | None":
        """A reader of the object under `key`."""
        inner = self.mapping(key)
        return None if inner is None else Reader(inner, self.name(key))

    def required_string(self, key: str) -> str:
        value = self.string(key)
        if value is None:
            raise self.refuse(key, "is required; it wants a string")
        return value

    def _wrong(self, key: str, value: object, wanted: str) -> BadField:
        return self.refuse(key, f"wants {wanted}, got {json_type(value)} {shown(value)}")

    def _bounds(self, key: str, value: float, minimum: float | None, maximum: float | None) -> None:
        if minimum is not None and value < minimum:
            raise self.refuse(key, f"wants a value of at least {minimum}, got {shown(value)}")
        if maximum is not None and value > maximum:
            raise self.refuse(key, f"wants a value of at most {maximum}, got {shown(value)}")
