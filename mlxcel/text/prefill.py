"""The prompt of a conversation, and the case that its last turn is an answer begun.

An assistant turn at the end is not a turn to render: its text opens the answer and the model
goes on from there (contract http-openai, 4.3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.core.request import Message, Tool
from mlxcel.text.template import ChatTemplate
from mlxcel.text.thinking import primed_pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The text to encode, up to where the model takes over."""

    text: str
    begun: str = ""
    """What of the answer stands at its end already, think block included."""
    echoed: str = ""
    """The same without the thinking: what `echo` tells the client again."""


def render_prompt(
    template: ChatTemplate,
    messages: Sequence[Message],
    kwargs: Mapping[str, Any],
    *,
    tools: Sequence[Tool] = (),
    prefill: bool = True,
) -> Prompt:
    """Without `prefill` an assistant turn at the end is a turn like any other."""
    head, begun = split_begun(messages) if prefill else (messages, None)
    text = template.render(head, kwargs, tools)
    if begun is None or not (begun.text or begun.reasoning):
        return Prompt(text=text)
    opening = _opening(text, begun)
    return Prompt(text=text + opening, begun=opening, echoed=begun.text)


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
    pair = primed_pair(prompt)
    if pair is None and not begun.text:
        raise BadRequest(
            "the last assistant message has reasoning but no text, and the model's chat template "
            "does not begin answers with reasoning; give it content or leave it out",
            param="messages",
        )
    if pair is None:
        return begun.text
    return begun.reasoning + (f"{pair[1]}{begun.text}" if begun.text else "")
