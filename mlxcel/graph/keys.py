"""Values of a plain tree by dotted key."""

from collections.abc import Mapping
from typing import Any


def read(tree: Mapping[str, Any], key: str) -> Any:
    """Raises KeyError with the whole key where a part of it is missing."""
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(key)
        value = value[part]
    return value


def write(tree: dict[str, Any], key: str, value: object) -> None:
    """Set a leaf of a tree of which every section exists."""
    *parents, leaf = key.split(".")
    for part in parents:
        tree = tree[part]
    tree[leaf] = value
