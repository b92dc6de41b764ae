"""What a chat request hands to the template beside its messages.

The official client merges its `extra_body` into the root; raw clients nest it. Both are read,
and the flattened key wins.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from mlxcel.protocols.fields import Reader

NESTED = "extra_body.chat_template_kwargs"
DEPTH = 32
CHARS = 65_536
"""Templates are programs we did not write: they get no more than this to walk."""


def read_template_kwargs(fields: Reader) -> dict[str, Any]:
    """What was sent and nothing else; an explicit kwarg beats the field of the same name."""
    kwargs = dict(_requested(fields))
    effort = _extra(fields, "reasoning_effort", fields.string("reasoning_effort"))
    if isinstance(effort, str) and effort:
        # A template that does not mention it ignores it.
        kwargs.setdefault("reasoning_effort", effort)
    return kwargs


def _requested(fields: Reader) -> Mapping[str, Any]:
    """The first shape that is there; a sent object is final, even when it is empty."""
    rooted = fields.mapping("chat_template_kwargs")
    nested = _extra(fields, "chat_template_kwargs", rooted)
    if isinstance(nested, dict):
        _check_size(fields, "chat_template_kwargs" if nested is rooted else NESTED, nested)
        return nested
    preserve = _extra(fields, "preserve_thinking", fields.body.get("preserve_thinking"))
    return {"preserve_thinking": preserve} if isinstance(preserve, bool) else {}


def _check_size(fields: Reader, key: str, kwargs: Mapping[str, Any]) -> None:
    """Looks at no more than the bounds allow, whatever was sent."""
    chars = 0
    for depth, size in _walk(kwargs, 1):
        chars += size
        if depth > DEPTH:
            raise fields.refuse(key, f"is nested deeper than {DEPTH} levels")
        if chars > CHARS:
            raise fields.refuse(key, f"holds more than {CHARS} characters")


def _walk(value: object, depth: int) -> Iterator[tuple[int, int]]:
    """For every key and value: levels of objects and arrays around it, and about as many
    characters as it has in JSON."""
    if isinstance(value, dict):
        yield depth, 2
        for key, item in value.items():
            yield depth, len(key) + 4
            yield from _walk(item, depth + 1)
    elif isinstance(value, list):
        yield depth, 2
        for item in value:
            yield from _walk(item, depth + 1)
    else:
        yield depth - 1, len(str(value)) + 1


def _extra(fields: Reader, key: str, rooted: object) -> object:
    """The value at the root, else the one in a nested `extra_body`."""
    if rooted is not None:
        return rooted
    extra = fields.mapping("extra_body")
    return None if extra is None else extra.get(key)
