"""One conversation, built once, and written down as clients of each dialect would."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from mlxcel.protocols.responses.sealed import sealed

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    id: str
    name: str
    arguments: Json
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """It says something, or calls something; each call has its result."""

    reasoning: str = ""
    text: str = ""
    calls: Sequence[Call] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    description: str | None
    parameters: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    system: str = ""
    tools: Sequence[Tool] = ()
    turns: Sequence[str | Answer] = ()
    """Of the user, and of the assistant. Two of the latter only where calls and their results are
    between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Ways of saying the same."""

    in_parts: bool = False
    is_sealed: bool = False
    calls_first: bool = False
    has_system_item: bool = False
    strict: Json = field(default_factory=dict)


PLAIN = Style()
MODEL = {"model": "any", "max_tokens": 8}


def chat_body(told: Conversation, style: Style = PLAIN) -> Json:
    messages: list[Json] = []
    if told.system:
        messages.append({"role": "system", "content": _halves(told.system, "text", style)})
    for turn in told.turns:
        if isinstance(turn, str):
            messages.append({"role": "user", "content": _halves(turn, "text", style)})
            continue
        said: Json = {"role": "assistant", "content": turn.text or None}
        if turn.reasoning:
            said["reasoning_content"] = turn.reasoning
        if turn.calls:
            said["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for call in turn.calls
            ]
        messages.append(said)
        messages += (
            {
                "role": "tool",
                "tool_call_id": call.id,
                "content": _halves(call.result, "text", style),
            }
            for call in turn.calls
        )
    tools = [{"type": "function", "function": _tool(tool, "parameters")} for tool in told.tools]
    return MODEL | {"messages": messages} | ({"tools": tools} if tools else {})


def messages_body(told: Conversation, style: Style = PLAIN) -> Json:
    messages: list[Json] = []
    for turn in told.turns:
        if isinstance(turn, str):
            messages.append({"role": "user", "content": _lines(turn, "text", style)})
            continue
        blocks = _blocks(turn.reasoning, "thinking", style) if turn.reasoning else []
        blocks += _blocks(turn.text, "text", style) if turn.text else []
        blocks += (
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in turn.calls
        )
        messages.append({"role": "assistant", "content": blocks})
        if turn.calls:
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": _lines(call.result, "text", style),
                }
                for call in turn.calls
            ]
            messages.append({"role": "user", "content": results})
    body = MODEL | {"messages": messages}
    if told.system:
        body["system"] = _lines(told.system, "text", style)
    if told.tools:
        body["tools"] = [_tool(tool, "input_schema") for tool in told.tools]
    return body


def responses_body(told: Conversation, style: Style = PLAIN) -> Json:
    body: Json = {"model": "any", "max_output_tokens": 8}
    items: list[Json] = []
    if told.system and style.has_system_item:
        items.append(_item("system", told.system, "input_text", style))
    elif told.system:
        body["instructions"] = told.system
    for turn in told.turns:
        if isinstance(turn, str):
            items.append(_item("user", turn, "input_text", style))
        else:
            items += _answered(turn, style)
    tools = [
        {"type": "function", **_tool(tool, "parameters"), **style.strict} for tool in told.tools
    ]
    return body | {"input": items} | ({"tools": tools} if tools else {})


def _answered(turn: Answer, style: Style) -> list[Json]:
    thought = [_thought(line, style) for line in _split(turn.reasoning, style) if turn.reasoning]
    said = [_item("assistant", turn.text, "output_text", style)] if turn.text else []
    calls: list[Json] = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
        }
        for call in turn.calls
    ]
    results = [
        {
            "type": "function_call_output",
            "call_id": call.id,
            "output": _output(call.result, style),
        }
        for call in turn.calls
    ]
    return [*thought, *((*calls, *said) if style.calls_first else (*said, *calls)), *results]


def _thought(text: str, style: Style) -> Json:
    if style.is_sealed:
        return {"type": "reasoning", "summary": [], "encrypted_content": sealed(text)}
    return {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]}


def _item(role: str, text: str, kind: str, style: Style) -> Json:
    return {"type": "message", "role": role, "content": _halves(text, kind, style)}


def _tool(tool: Tool, schema: str) -> Json:
    about = {} if tool.description is None else {"description": tool.description}
    return {"name": tool.name, **about, schema: tool.parameters}


def _halves(text: str, kind: str, style: Style) -> Any:
    """Chat and Responses put parts together as they are."""
    if not style.in_parts:
        return text
    middle = len(text) // 2
    return [{"type": kind, "text": part} for part in (text[:middle], text[middle:])]


def _lines(text: str, kind: str, style: Style) -> Any:
    return _blocks(text, kind, style) if style.in_parts else text


def _blocks(text: str, kind: str, style: Style) -> list[Json]:
    """In Messages a line end stands between two blocks."""
    return [{"type": kind, kind: line} for line in _split(text, style)]


def _output(text: str, style: Style) -> Any:
    """Between the parts of a result a line end stands in Responses too."""
    if not style.in_parts:
        return text
    return [{"type": "input_text", "text": line} for line in _split(text, style)]


def _split(text: str, style: Style) -> list[str]:
    """Nobody sends a blank part."""
    lines = text.split("\n")
    return lines if style.in_parts and all(map(str.strip, lines)) else [text]


TEXTS = st.text(st.sampled_from('ab <>/"{}\n\té€😀'), max_size=12) | st.sampled_from(
    ["<think>old</think>new", "</think>", "x\n\ny", " ", "<tool_call>{}</tool_call>"]
)
WORDS = TEXTS.filter(str.strip)
"""A text of white space alone is no text in all dialects."""
NAMES = st.sampled_from(["read_file", "run", "größe"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.just(0.5) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
CALLS = st.builds(
    Call,
    id=st.from_regex(r"call_[a-z0-9]{4}", fullmatch=True),
    name=NAMES,
    arguments=OBJECTS,
    result=TEXTS,
)
CALLING = st.builds(
    Answer,
    reasoning=WORDS | st.just(""),
    text=WORDS | st.just(""),
    calls=st.lists(CALLS, min_size=1, max_size=3),
)
SAYING = st.builds(Answer, reasoning=WORDS | st.just(""), text=WORDS)
TOOLS = st.builds(
    Tool,
    name=NAMES,
    description=st.none() | TEXTS,
    parameters=st.just({"type": "object", "properties": {"path": {"type": "string"}}}),
)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """What the user says first, then rounds of calls, an answer, and the user again."""
    turns: list[str | Answer] = []
    for _ in range(draw(st.integers(1, 3))):
        turns.append(draw(WORDS))
        turns += draw(st.lists(CALLING, max_size=2))
        if draw(st.booleans()):
            turns.append(draw(SAYING))
    tools = draw(st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name))
    return Conversation(system=draw(WORDS | st.just("")), tools=tools, turns=turns)


STYLES = st.builds(
    Style,
    in_parts=st.booleans(),
    is_sealed=st.booleans(),
    calls_first=st.booleans(),
    has_system_item=st.booleans(),
    strict=st.sampled_from([{}, {"strict": False}, {"strict": None}]),
)
