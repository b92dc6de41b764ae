"""Where fields may stand that the contract does not type: at the root, or in `extra_body`.

The official client merges its `extra_body` into the root; raw clients nest it. Both are read,
and the flattened key wins.
"""

from collections.abc import Iterator
from typing import Any

from mlxcel.protocols.fields import Reader


def extra(fields: Reader, key: str, rooted: object) -> object:
    """The value at the root, else the one in a nested `extra_body`."""
    if rooted is not None:
        return rooted
    nested = fields.mapping("extra_body")
    return None if nested is None else nested.get(key)


def read_switch(fields: Reader, key: str) -> bool:
    """The first boolean of the two places; any other type counts as absent there."""
    nested = fields.mapping("extra_body") or {}
    places = (fields.body.get(key), nested.get(key))
    return next((value for value in places if isinstance(value, bool)), False)


def read_text(fields: Reader, key: str) -> str | None:
    """The first string of the two places that is not empty. Another type is refused at the root
    and counts as absent in the other place."""
    rooted = fields.string(key)
    found = extra(fields, key, rooted if rooted else None)
    return found if isinstance(found, str) and found else None


def check_size(fields: Reader, key: str, value: Any, *, depth: int, chars: int) -> None:
    """Refuses `key`; looks at no more than the bounds allow, whatever was sent."""
    seen = 0
    for level, size in _walk(value, 1):
        seen += size
        if level > depth:
            raise fields.refuse(key, f"is nested deeper than {depth} levels")
        if seen > chars:
            raise fields.refuse(key, f"holds more than {chars} characters")


def _walk(value: object, level: int) -> Iterator[tuple[int, int]]:
    """For every key and value: levels of objects and arrays around it, and about as many
    characters as it has in JSON."""
    if isinstance(value, dict):
        yield level, 2
        for key, item in value.items():
            yield level, len(key) + 4
            yield from _walk(item, level + 1)
    elif isinstance(value, list):
        yield level, 2
        for item in value:
            yield from _walk(item, level + 1)
    else:
        yield level - 1, len(str(value)) + 1
