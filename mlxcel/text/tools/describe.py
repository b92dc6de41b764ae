"""Tools for a model whose chat template has no place for them: told in words, and earlier calls
shown, in the form that the parser of such a model reads."""

import json
from collections.abc import Sequence
from dataclasses import replace

from mlxcel.core.request import Message, Tool, ToolCall
from mlxcel.text.messages import read_arguments

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


def with_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The calls of earlier turns as text of those turns. The turns keep them beside it: that a
    turn ended with calls is asked for later."""
    return tuple(_shown(message) if message.calls else message for message in messages)


def _shown(message: Message) -> Message:
    said = [message.text] if message.text else []
    return replace(message, text="\n".join([*said, *map(_markup, message.calls)]))


def _markup(call: ToolCall) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {_written(call)}}}\n</tool_call>'


def _written(call: ToolCall) -> str:
    """Anew, whichever way a client writes JSON: one call is one text, and the one that models
    write. What is nested deeper than can be written stays as it was sent."""
    try:
        return json.dumps(read_arguments(call.arguments), ensure_ascii=False)
    except RecursionError:
        return call.arguments
