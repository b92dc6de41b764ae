"""The prompt of a conversation, and the case that its last turn is an answer begun.

An assistant turn at the end is not a turn to render: its text opens the answer and the model
goes on from there (contract http-openai, 4.3).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.core.request import Message
from mlxcel.text.template import ChatTemplate

THINK_MARKERS = {
    "<think>": "</think>",
    "<longcat_think>": "</longcat_think>",
    "<|channel>thought": "<channel|>",
}
"""Openings a template may leave at the end of a prompt, and what closes them."""


def render_prompt(
    template: ChatTemplate, messages: Sequence[Message], kwargs: Mapping[str, Any]
) -> tuple[str, bool]:
    """The text to encode, and whether the answer continues a text that is already there."""
    head, begun = split_begun(messages)
    prompt = template.render(head, kwargs)
    if begun is None or not (begun.text or begun.reasoning):
        return prompt, False
    return prompt + _opening(prompt, begun), True


def split_begun(messages: Sequence[Message]) -> tuple[Sequence[Message], Message | None]:
    """Splits off an assistant turn at the end, unless it ended in tool calls."""
    if [message.role for message in messages[-2:]] == ["assistant", "assistant"]:
        raise BadRequest(
            "Cannot have 2 or more assistant messages at the end of the list.", param="messages"
        )
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or last.calls:
        return messages, None
    return messages[:-1], last


def _opening(prompt: str, begun: Message) -> str:
    closing = _closing_marker(prompt)
    if closing is None and not begun.text:
        raise BadRequest(
            "the last assistant message has reasoning but no text, and the model's chat template "
            "does not begin answers with reasoning; give it content or leave it out",
            param="messages",
        )
    if closing is None:
        return begun.text
    return begun.reasoning + (f"{closing}{begun.text}" if begun.text else "")


def _closing_marker(prompt: str) -> str | None:
    end = prompt.rstrip()
    return next((close for start, close in THINK_MARKERS.items() if end.endswith(start)), None)
