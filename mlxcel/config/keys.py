"""Values of a plain tree by dotted key."""

from collections.abc import Iterator, Mapping
from typing import Any

LIVE = "live"
"""The section whose keys PATCH /v1/settings may change."""


def is_live(key: str) -> bool:
    return key.startswith(f"{LIVE}.")


def read(tree: Mapping[str, Any], key: str) -> Any:
    """Raises KeyError with the whole key where a part of it is missing."""
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(key)
        value = value[part]
    return value


def write(tree: dict[str, Any], key: str, value: object) -> None:
    """Set a leaf of a tree; sections that are missing are made."""
    *parents, leaf = key.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
    tree[leaf] = value


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values; an empty mapping counts as a value."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{key}.")
        else:
            yield key, value
