"""YAML files; comments, quotes and order stay."""

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mlxcel.connect.merge import merge, pruned

_BELOW = r"^( *)[^\s#-][^\n]*:[ \t]*\n(?:[ \t]*(?:#[^\n]*)?\n)*"
"""A key whose value begins on the next line that is no comment."""
_LIST = re.compile(rf"{_BELOW}( *)- ", re.MULTILINE)
_MAPPING = re.compile(rf"{_BELOW}(\1 +)[^\s#-]", re.MULTILINE)
_WIDTH = 1 << 20
"""No line is folded."""


def read(text: str) -> dict[str, Any]:
    """Raises ValueError for what is no mapping."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("it is no YAML mapping")
    return value


def render(settings: Mapping[str, Any]) -> str:
    return _dumped(_editor(""), pruned(settings))


def edit(text: str, settings: Mapping[str, Any]) -> str:
    """Raises ValueError for a text that is no YAML mapping, and Clash."""
    if not read(text):
        # Comments alone are no document to ruamel, and would be lost.
        return f"{text.rstrip()}\n{render(settings)}".lstrip("\n")
    editor = _editor(text)
    try:
        document = editor.load(text)
    except YAMLError as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())}") from error
    merge(document, settings)
    return _dumped(editor, document)


def _editor(text: str) -> YAML:
    """One that writes lists and mappings as far in as the file does."""
    editor = YAML()
    editor.preserve_quotes = True
    editor.width = _WIDTH
    editor.explicit_start = text.startswith("---")
    offset = _depth(_LIST, text)
    editor.indent(mapping=_depth(_MAPPING, text), sequence=offset + 2, offset=offset)
    return editor


def _depth(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return 2 if found is None else max(0, len(found[2]) - len(found[1]))


def _dumped(editor: YAML, document: Any) -> str:
    stream = StringIO()
    editor.dump(document, stream)
    return stream.getvalue()
