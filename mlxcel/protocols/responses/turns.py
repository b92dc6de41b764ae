"""Items as the turns a chat template knows: what chat completions would have been sent."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlxcel.core.request import Message, ToolCall
from mlxcel.protocols.responses import foreign
from mlxcel.protocols.responses.items import Item
from mlxcel.protocols.responses.parts import joined
from mlxcel.protocols.responses.sealed import opened

BETWEEN = "\n\n"
"""Instructions, and the system text that stood at the beginning already."""
SYSTEM = ("system", "developer")


@dataclass(slots=True)
class _Answer:
    """A turn of the assistant, of which thoughts, words and calls are items of their own."""

    thoughts: list[str] = field(default_factory=list)
    text: str | None = None
    calls: list[ToolCall] = field(default_factory=list)

    @property
    def is_said(self) -> bool:
        return self.text is not None or bool(self.calls)

    def message(self) -> Message:
        return Message(
            role="assistant",
            text="" if self.text is None else self.text,
            reasoning="\n".join(self.thoughts),
            calls=tuple(self.calls),
        )


def turns(items: Iterable[Item]) -> list[Message]:
    """Thoughts are part of the turn of the assistant that follows them; where none does, they
    are left out. Calls and the words beside them are one turn, whichever came first."""
    told: list[Message] = []
    answer = _Answer()
    for item in items:
        if _is_left_out(item):
            continue
        if _begins_anew(answer, item):
            told.append(answer.message())
            answer = _Answer()
        match item["type"], item.get("role"):
            case "reasoning", _:
                answer.thoughts.append(_thought(item))
            case "function_call", _:
                answer.calls.append(_call(item))
            case kind, _ if kind in foreign.CALLS:
                answer.calls.append(foreign.call(item))
            case "message", "assistant":
                answer.text = joined(item["content"])
            case _:
                answer = _Answer()
                told.append(_turn(item))
    return [*told, answer.message()] if answer.is_said else told


def with_instructions(instructions: str | None, messages: Sequence[Message]) -> list[Message]:
    """In front. System text that stood there is made part of it: many templates take, or show,
    no more than one such turn."""
    head = 0
    while head < len(messages) and messages[head].role in SYSTEM:
        head += 1
    asked = instructions if instructions and instructions.strip() else None
    if asked is None and head < 2:
        return list(messages)
    texts = [message.text for message in messages[:head] if message.text.strip()]
    role = "system" if asked is not None else messages[0].role
    system = Message(role=role, text=BETWEEN.join(([] if asked is None else [asked]) + texts))
    return [system, *messages[head:]]


def has_input(messages: Iterable[Message]) -> bool:
    return any(m.text.strip() or m.calls or m.reasoning for m in messages)


def without_thoughts(history: Iterable[Item]) -> list[Item]:
    """Those of earlier responses are not read again (http-responses, 4)."""
    return [item for item in history if item["type"] != "reasoning"]


def _is_left_out(item: Item) -> bool:
    """Thoughts that cannot be read are as if they had not been sent: no turn ends at them."""
    return item["type"] in foreign.HOSTED or (item["type"] == "reasoning" and not _thought(item))


def _thought(item: Item) -> str:
    return "".join(part["text"] for part in item["content"])


def _begins_anew(answer: _Answer, item: Item) -> bool:
    if not answer.is_said:
        return False
    match item["type"], item.get("role"):
        case kind, _ if kind == "function_call" or kind in foreign.CALLS:
            return False
        case "message", "assistant":
            return answer.text is not None
    return True


def _turn(item: Item) -> Message:
    match item["type"]:
        case "function_call_output":
            return Message(role="tool", text=_output(item["output"]), call_id=item["call_id"])
        case "compaction":
            return Message(role="system", text=opened(item["encrypted_content"]) or "")
        case kind if kind in foreign.RESULTS:
            return foreign.result(item)
    return Message(role=item["role"], text=joined(item["content"]), name=item.get("name"))


def _output(output: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(output, str):
        return output
    return "\n".join(
        part["text"] if part.get("type") == "input_text" else json.dumps(part, ensure_ascii=False)
        for part in output
    )


def _call(item: Item) -> ToolCall:
    return ToolCall(id=item["call_id"], name=item["name"], arguments=item["arguments"])
