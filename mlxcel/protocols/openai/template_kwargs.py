"""What a chat request hands to the template beside its messages.

The official client merges its `extra_body` into the root; raw clients nest it. Both are read,
and the flattened key wins.
"""

import json
from collections.abc import Mapping
from typing import Any

from mlxcel.protocols.fields import Reader

DEPTH = 32
JSON_CHARS = 65_536
"""Template kwargs cross to the chat worker and are walked by programs we did not write."""


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
        _check_size(fields, nested)
        return nested
    preserve = _extra(fields, "preserve_thinking", fields.body.get("preserve_thinking"))
    return {"preserve_thinking": preserve} if isinstance(preserve, bool) else {}


def _check_size(fields: Reader, kwargs: Mapping[str, Any]) -> None:
    key = "chat_template_kwargs"
    # Before the size: a JSON encoder recurses.
    if not _fits(kwargs, DEPTH):
        raise fields.refuse(key, f"is nested deeper than {DEPTH} levels")
    chars = len(json.dumps(kwargs, ensure_ascii=False, separators=(",", ":")))
    if chars > JSON_CHARS:
        rule = f"wants at most {JSON_CHARS} characters of JSON, got {chars}"
        raise fields.refuse(key, rule)


def _fits(value: object, depth: int) -> bool:
    """Whether a JSON value has at most that many levels of objects and arrays."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_fits(item, depth - 1) for item in inner)


def _extra(fields: Reader, key: str, rooted: object) -> object:
    """The value at the root, else the one in a nested `extra_body`."""
    if rooted is not None:
        return rooted
    extra = fields.mapping("extra_body")
    return None if extra is None else extra.get(key)
