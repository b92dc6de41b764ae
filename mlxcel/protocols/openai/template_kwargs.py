"""What a chat request hands to the template beside its messages.

The official client merges its `extra_body` into the root; raw clients nest it. Both are read,
and the flattened key wins.
"""

from collections.abc import Mapping
from typing import Any

from mlxcel.core.settings import Settings
from mlxcel.protocols.fields import Reader


def read_template_kwargs(fields: Reader, settings: Settings) -> dict[str, Any]:
    """The server's own kwargs under those of the request, key by key."""
    kwargs = dict(settings.template_kwargs) | dict(_requested(fields))
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
        return nested
    preserve = _extra(fields, "preserve_thinking", fields.body.get("preserve_thinking"))
    return {"preserve_thinking": preserve} if isinstance(preserve, bool) else {}


def _extra(fields: Reader, key: str, rooted: object) -> object:
    """The value at the root, else the one in a nested `extra_body`."""
    if rooted is not None:
        return rooted
    extra = fields.mapping("extra_body")
    return None if extra is None else extra.get(key)
