"""Takes what was thought earlier out of a conversation: most models are trained without it."""

from collections.abc import Sequence
from dataclasses import replace

from mlxcel.core.request import Message
from mlxcel.text.thinking import Marks


def without_old_thoughts(messages: Sequence[Message], marks: Marks) -> tuple[Message, ...]:
    """Assistant turns before the latest turn of the user lose their think blocks. Turns after it,
    between calls of tools and their results, are the train of thought at hand and keep them."""
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    latest = users[-1] if users else 0
    return tuple(
        _without_thoughts(message, marks)
        if place < latest and message.role == "assistant"
        else message
        for place, message in enumerate(messages)
    )


def _without_thoughts(message: Message, marks: Marks) -> Message:
    return replace(message, reasoning="", text=outside_blocks(message.text, marks))


def outside_blocks(text: str, marks: Marks) -> str:
    """Without blocks and the white space after each. One that a template had opened begins at
    the start of the text; one that was cut off ends with it."""
    said: list[str] = []
    first, closing, rest = text.partition(marks.closing)
    if closing and marks.opening not in first:
        text = rest.lstrip()
    while True:
        before, opening, block = text.partition(marks.opening)
        said.append(before)
        if not opening:
            return "".join(said)
        text = block.partition(marks.closing)[2].lstrip()
