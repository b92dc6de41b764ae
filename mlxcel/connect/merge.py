"""Settings merged into those there are: whatever is not named stays as it is.

Works on plain data and on documents that know their comments alike.
"""

from collections.abc import Mapping, MutableMapping, MutableSequence
from typing import Any


class Clash(ValueError):
    """Something else stands where a mapping or a list must."""

    def __init__(self, where: str, wanted: str) -> None:
        super().__init__(f"{where} is no {wanted}")


def merge(into: MutableMapping[str, Any], settings: Mapping[str, Any], where: str = "") -> None:
    """None takes a key out; null in the document counts as absent. Raises Clash."""
    for key, value in settings.items():
        name = f"{where}.{key}" if where else key
        if value is None:
            into.pop(key, None)
        elif into.get(key) is None:
            into[key] = pruned(value)
        elif isinstance(value, Mapping):
            if not isinstance(into[key], MutableMapping):
                raise Clash(name, "mapping")
            merge(into[key], value, name)
        elif isinstance(value, list):
            if not isinstance(into[key], MutableSequence):
                raise Clash(name, "list")
            _merge_list(into[key], value, name)
        elif not same(into[key], value):
            into[key] = value


def _merge_list(into: MutableSequence[Any], items: list[Any], where: str) -> None:
    for item in items:
        at = index_of(into, item)
        if at is None:
            into.append(pruned(item))
        elif isinstance(item, Mapping):
            merge(into[at], item, f"{where}[{at}]")


def index_of(items: "MutableSequence[Any] | list[Any]", wanted: object) -> int | None:
    """Where the item is: the mapping of that name, or the same value."""
    for at, item in enumerate(items):
        if isinstance(wanted, Mapping):
            if isinstance(item, Mapping) and item.get("name") == wanted["name"]:
                return at
        elif same(item, wanted):
            return at
    return None


def same(one: object, other: object) -> bool:
    """True is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def pruned(value: Any) -> Any:
    """Without the keys that shall not be."""
    if isinstance(value, Mapping):
        return {key: pruned(below) for key, below in value.items() if below is not None}
    return [pruned(item) for item in value] if isinstance(value, list) else value
