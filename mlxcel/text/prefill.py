"""The prompt of a conversation, and the case that its last turn is an answer begun.

An assistant turn at the end is not a turn to render: its text opens the answer and the model
goes on from there (contract http-openai, 4.3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.core.request import Message, Tool
from mlxcel.text.shared import shared_chars
from mlxcel.text.template import ChatTemplate, TemplateRefused
from mlxcel.text.thinking import primed_pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The text to encode, up to where the model takes over."""

    text: str
    begun: str = ""
    """What of the answer stands at its end already, think block included."""
    echoed: str = ""
    """The same without the thinking: what `echo` tells the client again."""
    history: int = 0
    """Characters of the text that the next turn's begins with as well: those of the messages,
    without what asks for the answer. 0: not known."""
    system: int = 0
    """Characters of the system messages it begins with; 0: none, or not to be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Which places of a prompt are to be found."""

    history: bool = False
    system: bool = False


NO_PLACES = Places()
SYSTEM_ROLES = ("system", "developer")


def render_prompt(
    template: ChatTemplate,
    messages: Sequence[Message],
    kwargs: Mapping[str, Any],
    *,
    tools: Sequence[Tool] = (),
    prefill: bool = True,
    places: Places = NO_PLACES,
) -> Prompt:
    """Without `prefill` an assistant turn at the end is a turn like any other."""
    head, begun = split_begun(messages) if prefill else (messages, None)
    text = template.render(head, kwargs, tools)
    leading = leading_system(head) if places.system else ()

    def said(part: Sequence[Message]) -> str:
        """Without what asks for an answer; empty where the template wants more messages."""
        try:
            return template.render(part, kwargs, tools, asks=False)
        except TemplateRefused:
            return ""

    prompt = Prompt(
        text=text,
        history=shared_chars(said(head), text) if places.history else 0,
        system=_leading(said(leading), text) if leading else 0,
    )
    if begun is None or not (begun.text or begun.reasoning):
        return prompt
    opening = _opening(text, begun)
    return replace(prompt, text=text + opening, begun=opening, echoed=begun.text)


def leading_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The system messages at the beginning."""
    return tuple(takewhile(lambda message: message.role in SYSTEM_ROLES, messages))


def _leading(beginning: str, text: str) -> int:
    return len(beginning) if text.startswith(beginning) else 0


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
