"""JSON with comments and trailing commas, read into nodes that know where they stand."""

import json
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

_SPACE = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PLAIN = re.compile(r"[-+.\w]+")


@dataclass(slots=True, kw_only=True)
class Node:
    """A value. Of an object or a list, `children` says where each part begins: an object's at
    the key. The last one of a repeated key counts, as everywhere."""

    start: int
    end: int = 0
    value: Any = None
    members: dict[str, "Node"] = field(default_factory=dict)
    items: list["Node"] = field(default_factory=list)
    children: list[tuple[int, "Node"]] = field(default_factory=list)


def is_blank(text: str) -> bool:
    """Nothing but space and comments."""
    return skip(text, 0) == len(text)


def parse(text: str) -> Node:
    """Raises ValueError with the line."""
    node = _value(text, skip(text, 0))
    if (end := skip(text, node.end)) < len(text):
        _fail(text, end)
    return node


def _value(text: str, at: int) -> Node:
    opening = text[at : at + 1]
    if opening == "{":
        return _object(text, at)
    if opening == "[":
        return _list(text, at)
    match = (_STRING if opening == '"' else _PLAIN).match(text, at)
    if match is None:
        _fail(text, at)
    try:
        value = json.loads(match[0], strict=False)
    except ValueError:
        _fail(text, at)
    return Node(start=at, end=match.end(), value=value)


def _object(text: str, start: int) -> Node:
    node = Node(start=start, value={})
    at = skip(text, start + 1)
    while text[at : at + 1] != "}":
        key = _value(text, at)
        colon = skip(text, key.end)
        if not isinstance(key.value, str) or text[colon : colon + 1] != ":":
            _fail(text, at)
        below = _value(text, skip(text, colon + 1))
        node.members[key.value], node.value[key.value] = below, below.value
        node.children.append((at, below))
        at = _next(text, below.end, "}")
    node.end = at + 1
    return node


def _list(text: str, start: int) -> Node:
    node = Node(start=start, value=[])
    at = skip(text, start + 1)
    while text[at : at + 1] != "]":
        item = _value(text, at)
        node.items.append(item)
        node.value.append(item.value)
        node.children.append((at, item))
        at = _next(text, item.end, "]")
    node.end = at + 1
    return node


def _next(text: str, end: int, closing: str) -> int:
    """Where the next part begins, or the closing mark is."""
    at = skip(text, end)
    if text[at : at + 1] == ",":
        return skip(text, at + 1)
    if text[at : at + 1] != closing:
        _fail(text, at)
    return at


def skip(text: str, at: int) -> int:
    """Where the next thing stands that is neither space nor comment."""
    match = _SPACE.match(text, at)
    assert match is not None  # it matches nothing as well
    return match.end()


def _fail(text: str, at: int) -> NoReturn:
    line = text.count("\n", 0, at) + 1
    raise ValueError(f"line {line} is not JSON")
