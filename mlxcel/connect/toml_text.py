"""TOML files; comments and order stay."""

from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError

from mlxcel.connect.merge import merge


def read(text: str) -> dict[str, Any]:
    """Raises ValueError with the line."""
    return _parsed(text).unwrap()


def render(settings: Mapping[str, Any]) -> str:
    return edit("", settings)


def edit(text: str, settings: Mapping[str, Any]) -> str:
    """Raises ValueError for a text that is no TOML, and Clash."""
    document = _parsed(text)
    merge(document, settings)
    return tomlkit.dumps(document)


def _parsed(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except ParseError as error:
        raise ValueError(f"it is not TOML: {error}") from error
