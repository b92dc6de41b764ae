"""What a chat request hands to the template beside its messages and tools."""

from collections.abc import Mapping
from typing import Any

from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.extras import check_size, extra, read_text

NESTED = "extra_body.chat_template_kwargs"
DEPTH = 32
CHARS = 65_536
"""Templates are programs we did not write: they get no more than this to walk."""


def read_template_kwargs(fields: Reader) -> dict[str, Any]:
    """What was sent and nothing else; an explicit kwarg beats the field of the same name."""
    kwargs = dict(_requested(fields))
    effort = read_text(fields, "reasoning_effort")
    if effort is not None:
        # A template that does not mention it ignores it.
        kwargs.setdefault("reasoning_effort", effort)
    return kwargs


def _requested(fields: Reader) -> Mapping[str, Any]:
    """The first shape that is there; a sent object is final, even when it is empty."""
    rooted = fields.mapping("chat_template_kwargs")
    nested = extra(fields, "chat_template_kwargs", rooted)
    if isinstance(nested, dict):
        key = "chat_template_kwargs" if nested is rooted else NESTED
        check_size(fields, key, nested, depth=DEPTH, chars=CHARS)
        return nested
    preserve = extra(fields, "preserve_thinking", fields.body.get("preserve_thinking"))
    return {"preserve_thinking": preserve} if isinstance(preserve, bool) else {}
