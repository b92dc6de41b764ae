"""Tools for a model whose chat template has no place for them: told in words, in the form that
the parser of such a model reads."""

import json
from collections.abc import Sequence
from dataclasses import replace

from mlxcel.core.request import Message, Tool

HEAD = "You may call functions to answer the user. These are declared:"
FORM = (
    "To call one, answer with this and nothing else, once for each call:\n"
    "<tool_call>\n"
    '{"name": <name of the function>, "arguments": <object of its arguments>}\n'
    "</tool_call>"
)


def with_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Message, ...]:
    """A new leading system turn, or more text of the one that is there."""
    lines = "\n".join(json.dumps(tool.sent, ensure_ascii=False) for tool in tools)
    text = f"{HEAD}\n{lines}\n{FORM}"
    first = messages[0] if messages else None
    if first is None or first.role not in ("system", "developer"):
        return (Message(role="system", text=text), *messages)
    return (replace(first, text=f"{first.text}\n\n{text}"), *messages[1:])
