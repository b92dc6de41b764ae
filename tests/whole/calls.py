"""Tools of a request, and the calls of an answer in either form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.cases.asking import CHAT, stream
from tests.whole.program import Program

Call = tuple[str, str]
"""Name and arguments."""


def tool(name: str, parameters: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def named(name: str) -> dict[str, Any]:
    """The `tool_choice` that asks for a function by its name."""
    return {"type": "function", "function": {"name": name}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What a client has of an answer once it is whole."""

    content: str | None
    calls: tuple[Call, ...]
    reason: str


def plain(program: Program, body: dict[str, Any]) -> Spoken:
    status, answer = program.post(CHAT, body)
    assert status == 200, answer
    choice = answer["choices"][0]
    message = choice["message"]
    calls = message.get("tool_calls", [])
    assert all(call["type"] == "function" for call in calls)
    _check_ids([call["id"] for call in calls])
    return Spoken(
        content=message["content"],
        calls=tuple((c["function"]["name"], c["function"]["arguments"]) for c in calls),
        reason=choice["finish_reason"],
    )


def streamed(program: Program, body: dict[str, Any]) -> Spoken:
    """Put together as clients do: by `index`, the name from the first frame of a call."""
    seen = stream(program, body)
    assert seen.is_done, seen.payloads[-1]
    calls: dict[int, dict[str, str]] = {}
    deltas = [choice["delta"] for chunk in seen.chunks for choice in chunk["choices"]]
    for part in (part for delta in deltas for part in delta.get("tool_calls", ())):
        function = part["function"]
        if part["index"] not in calls:
            assert part["type"] == "function"
            calls[part["index"]] = {"id": part["id"], "name": function["name"], "arguments": ""}
        calls[part["index"]]["arguments"] += function.get("arguments", "")
    assert list(calls) == list(range(len(calls)))
    _check_ids([call["id"] for call in calls.values()])
    (reason,) = seen.reasons
    return Spoken(
        content=seen.text or (None if calls else ""),
        calls=tuple((call["name"], call["arguments"]) for call in calls.values()),
        reason=reason,
    )


def _check_ids(ids: Sequence[str]) -> None:
    assert len(set(ids)) == len(ids)
    assert all(one.startswith("call_") and len(one) == 29 for one in ids)
