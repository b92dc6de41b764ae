"""A forced choice of tools said to the model in words."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mlxcel.core.request import Message, ToolChoice, ToolMode

_REQUIRED = "You must answer by calling one or more of the available functions."
_NAMED = "You must answer by calling the function `{name}`."
_SYSTEM = ("system", "developer")


def with_instruction(messages: Sequence[Message], choice: ToolChoice) -> tuple[Message, ...]:
    """The messages as they are, unless a call is forced."""
    if not choice.is_forced:
        return tuple(messages)
    text = _REQUIRED if choice.mode is ToolMode.REQUIRED else _NAMED.format(name=choice.name)
    place = next(_places(messages), None)
    if place is None:
        return (Message(role="system", text=text), *messages)
    told = replace(messages[place], text=_appended(messages[place].text, text))
    return (*messages[:place], told, *messages[place + 1 :])


def _places(messages: Sequence[Message]) -> Iterator[int]:
    """The first system message, the last user message."""
    yield from (n for n, message in enumerate(messages) if message.role in _SYSTEM)
    yield from (n for n in reversed(range(len(messages))) if messages[n].role == "user")


def _appended(text: str, instruction: str) -> str:
    return f"{text}\n\n{instruction}" if text else instruction
