"""JSON files, with comments or without: an edit changes the places that differ and nothing else."""

import json
import re
from collections.abc import Mapping
from typing import Any

from mlxcel.connect.json_nodes import Node, is_blank, parse, skip
from mlxcel.connect.merge import Clash, index_of, pruned, same

# What may stand behind a value on its line.
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|/\*(?:[^*\n]|\*(?!/))*\*/[ \t]*)?(?=\r?\n)")
_INDENT = re.compile(r"[ \t]*")
_UNIT = "  "

Edit = tuple[int, int, str]
"""From, to, and what stands there instead."""


def read(text: str) -> dict[str, Any]:
    """Raises ValueError for what is no object."""
    if is_blank(text):
        return {}
    value = parse(text).value
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def render(settings: Mapping[str, Any]) -> str:
    return json.dumps(pruned(settings), indent=_UNIT, ensure_ascii=False) + "\n"


def edit(text: str, settings: Mapping[str, Any]) -> str:
    """Raises ValueError for a text that is no JSON object, and Clash."""
    read(text)
    if is_blank(text):
        return f"{text.rstrip()}\n{render(settings)}".lstrip("\n")
    while (change := _in_object(text, parse(text), settings, "")) is not None:
        start, end, instead = change
        text = text[:start] + instead + text[end:]
    return text


def _difference(text: str, node: Node, wanted: Any, where: str) -> Edit | None:
    """The first place that must change."""
    if node.value is not None and isinstance(wanted, Mapping):
        return _in_object(text, node, wanted, where)
    if node.value is not None and isinstance(wanted, list):
        return _in_list(text, node, wanted, where)
    if same(node.value, wanted):
        return None
    return node.start, node.end, _written(text, wanted, _indent(text, node.start))


def _in_object(text: str, node: Node, wanted: Mapping[str, Any], where: str) -> Edit | None:
    if not isinstance(node.value, dict):
        raise Clash(where, "mapping")
    for key, value in wanted.items():
        assert value is not None, "nothing is taken out of JSON"
        if key not in node.members:
            return _added(text, node, f"{json.dumps(key, ensure_ascii=False)}: ", value)
        name = f"{where}.{key}" if where else key
        if change := _difference(text, node.members[key], value, name):
            return change
    return None


def _in_list(text: str, node: Node, wanted: list[Any], where: str) -> Edit | None:
    if not isinstance(node.value, list):
        raise Clash(where, "list")
    for item in wanted:
        at = index_of(node.value, item)
        if at is None:
            return _added(text, node, "", item)
        if change := _difference(text, node.items[at], item, f"{where}[{at}]"):
            return change
    return None


def _added(text: str, node: Node, key: str, value: Any) -> Edit:
    """A new last part, on a line of its own where the others have one."""
    if not node.children:
        return _first(text, node, key, value)
    begins, last = node.children[-1]
    comma_at = skip(text, last.end)
    has_comma = text[comma_at] == ","
    if not _begins_line(text, begins):
        comma = " " if has_comma else ", "
        end = node.end - 1 if has_comma else last.end
        return end, end, f"{comma}{key}{json.dumps(value, ensure_ascii=False)}"
    indent = _indent(text, begins)
    after = comma_at + 1 if has_comma else last.end
    rest = _REST_OF_LINE.match(text, after)
    end = rest.end() if rest else after
    kept = text[last.end : end]
    line = f"{_newline(text)}{indent}{key}{_written(text, value, indent)}"
    return last.end, end, f"{kept}{line}," if has_comma else f",{kept}{line}"


def _first(text: str, node: Node, key: str, value: Any) -> Edit:
    outer = _indent(text, node.start)
    inner, newline = outer + _unit(text), _newline(text)
    kept = text[node.start + 1 : node.end - 1].rstrip()
    line = f"{newline}{inner}{key}{_written(text, value, inner)}{newline}{outer}"
    return node.start + 1, node.end - 1, kept + line


def _written(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return f"{_newline(text)}{indent}".join(lines)


def _unit(text: str) -> str:
    """How far the file itself indents."""
    found = re.search(r'^([ \t]+)"', text, re.MULTILINE)
    return found[1] if found else _UNIT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _indent(text: str, at: int) -> str:
    """Of the line that holds the place."""
    match = _INDENT.match(text, text.rfind("\n", 0, at) + 1, at)
    assert match is not None
    return match[0]
