"""A conversation as chat templates expect it: plain dicts in the shape of the OpenAI API."""

import json
from typing import Any

from mlxcel.core.request import Message, ToolCall


def as_template_message(message: Message, *, knows_developer: bool) -> dict[str, Any]:
    """`developer` becomes `system` for a template that has never heard of it.

    Optional keys are absent rather than null: templates ask `if message.name`, and also
    `if 'name' in message`.
    """
    is_foreign = message.role == "developer" and not knows_developer
    found: dict[str, Any] = {
        "role": "system" if is_foreign else message.role,
        "content": message.text,
    }
    if message.name is not None:
        found["name"] = message.name
    if message.reasoning:
        found |= {"reasoning_content": message.reasoning, "reasoning": message.reasoning}
    if message.calls:
        found["tool_calls"] = [_as_template_call(call) for call in message.calls]
    if message.call_id is not None:
        found["tool_call_id"] = message.call_id
    return found


def _as_template_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": read_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def read_arguments(text: str) -> Any:
    """An object where the text is one: templates iterate over it or print it as JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
