"""A call as parsed, and how what a parser found becomes one.

`arguments` is JSON text with the keys in the model's order. Formats that write values as plain
text get them typed by the tool's schema.
"""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxcel.core.request import Tool
from mlxcel.text.tools.typed import typed

# What can be a name although no tool has it: anything without white space, quotes or brackets.
_NAME = re.compile(r"[^\s<>(){}\[\]\"'`=,;]+")

Found = tuple[str, Mapping[str, Any]]
"""Name and arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """`index` is the place among all calls of the answer, those left out later included."""

    index: int
    name: str
    arguments: str


def found_calls(raw: Any, tools: Sequence[Tool]) -> list[Found]:
    """Raises ValueError when it is not the shape of one or more calls."""
    entries = raw if isinstance(raw, list) else [raw]
    if not entries:
        raise ValueError("no call at all")
    return [_found(entry, tools) for entry in entries]


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Raises ValueError for what JSON does not have: NaN, sets, endless nesting."""
    try:
        arguments = _finite(arguments)
        text = _dumps(arguments, ensure_ascii=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"arguments are no JSON: {error}") from error
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, which UTF-8 cannot carry and an escape can.
        return _dumps(arguments, ensure_ascii=True)
    return text


def type_by_schema(calls: Sequence[Found], tools: Sequence[Tool]) -> list[Found]:
    """Text becomes what the tool's schema asks for. A parser reads the text `null` as None
    even where the schema wants a string."""
    schemas = {tool.name: tool.parameters for tool in tools}
    return [(name, dict(_typed(args, schemas.get(name, {})))) for name, args in calls]


def texts_only(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The tools as a library parser reads them, every parameter declared as a string: it then
    leaves the text as it is."""
    return [_entry(t.name, dict.fromkeys(_properties(t.parameters), _STRING)) for t in tools]


def as_declared(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The tools as a library parser reads them."""
    return [_entry(tool.name, _properties(tool.parameters)) for tool in tools]


_STRING = {"type": "string"}


def _entry(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _properties(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are objects: the parsers ask each one for its `type`."""
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {key: schema for key, schema in properties.items() if isinstance(schema, Mapping)}


def _typed(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    properties = _properties(schema)
    for key, value in arguments.items():
        text = "null" if value is None else value
        known = isinstance(text, str) and key in properties
        yield key, typed(text, properties[key], schema) if known else value


def _found(entry: Any, tools: Sequence[Tool]) -> Found:
    if not isinstance(entry, Mapping):
        raise ValueError("a call is an object")
    name = entry.get("name")
    if not isinstance(name, str) or not _may_be_name(name, tools):
        raise ValueError(f"{name!r} cannot be the name of a function")
    return name, _object(entry.get("arguments", entry.get("parameters")))


def _may_be_name(name: str, tools: Sequence[Tool]) -> bool:
    return any(tool.name == name for tool in tools) or _NAME.fullmatch(name) is not None


def _object(arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        # Some models write the arguments as JSON text inside the JSON.
        arguments = json.loads(arguments)
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise ValueError("arguments are an object")
    return arguments


def _finite(value: Any) -> Any:
    """Python reads 1e999, which is a number to JSON and to grammars, as one it cannot write."""
    if isinstance(value, float) and math.isinf(value):
        return math.copysign(sys.float_info.max, value)
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list) else value


def _dumps(arguments: Mapping[str, Any], *, ensure_ascii: bool) -> str:
    return json.dumps(arguments, ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"))
