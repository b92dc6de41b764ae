"""An answer that is sent back is the turn it was, thoughts and all; what other models thought is
left out wherever it stands."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.errors import BadField
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from mlxcel.core.request import Message, ToolCall
from mlxcel.generation.collect import collect
from mlxcel.protocols.base import Head
from tests.protocols.anthropic.reading import messages_read, turns

HEAD = Head(id="msg_0", created=0, model="tiny")
END = Finished(
    Usage(prompt_tokens=9, completion_tokens=5),
    Timings(queued_ms=1.0, prompt_ms=2.0, decode_ms=3.0),
)
TEXT = {"type": "text", "text": "a"}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
SAID = Message(role="assistant", text="a", calls=(ToolCall(id="c", name="f", arguments="{}"),))


def answered(said: Sequence[Event]) -> dict[str, Any]:
    async def replayed() -> AsyncIterator[Event]:
        for event in (Accepted(9), *said, ChoiceFinished(FinishReason.EOS), END):
            yield event

    read = messages_read(thinking={"type": "enabled"})
    return read.answer(HEAD, asyncio.run(collect(replayed())))


def thinking(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": ""} | more


def echoed(content: Any) -> Message:
    """The assistant's turn that is made of it."""
    told = turns(("user", "q"), ("assistant", content), ("user", "r"))
    assert [message.role for message in told] == ["user", "assistant", "user"]
    return told[1]


@given(
    st.text(max_size=5),
    st.text(max_size=5),
    st.lists(st.sampled_from(["{}", '{"a": "é"}', "[1", '{"a": [1, null]}']), max_size=2),
)
def test_an_answer_that_is_sent_back_is_the_turn_it_was(
    thought: str, text: str, calls: list[str]
) -> None:
    """Of a call what was sent: one that was no JSON went out as an empty object."""
    deltas: list[Event] = [ReasoningDelta(thought)] if thought else []
    deltas += [TextDelta(text)] if text else []
    deltas += [ToolCallDelta(n, f"call_{n:024x}", "f", made) for n, made in enumerate(calls)]
    content = answered(deltas)["content"]
    turn = echoed(content)
    assert (turn.reasoning, turn.text) == (thought, text)
    sent = [block for block in content if block["type"] == "tool_use"]
    assert [call.id for call in turn.calls] == [block["id"] for block in sent]
    assert [call.arguments for call in turn.calls] == [
        made if made.startswith("{") else "{}" for made in calls
    ]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(thinking(""), id="empty"),
        pytest.param(thinking("", signature="EqQBCkYIBxgC"), id="omitted-and-signed"),
        pytest.param({"type": "redacted_thinking", "data": "EroBCkYI"}, id="redacted"),
        pytest.param({"type": "redacted_thinking"}, id="redacted-without-data"),
        pytest.param({"type": "redacted_thinking", "data": None, "x": 1}, id="redacted-null"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_thoughts_that_cannot_be_read_are_left_out(block: Any, place: int) -> None:
    content: list[Any] = [TEXT, USE]
    content.insert(place, block)
    assert echoed(content) == SAID
    seen = [thinking("hm"), *content]
    assert echoed(seen).reasoning == echoed([block, *seen]).reasoning == "hm"


@pytest.mark.parametrize(
    "signature", ["", "EqQBCkYIBxgC", "é🎭", "x" * 100_000, None, 7, ...], ids=lambda s: str(s)[:9]
)
def test_whoever_signed_it_a_thought_is_read(signature: Any) -> None:
    block = thinking("hm", signature=signature)
    if signature is ...:
        del block["signature"]
    assert echoed([block, TEXT]) == Message(role="assistant", text="a", reasoning="hm")


def test_thoughts_between_words_are_thoughts_of_the_turn() -> None:
    turn = echoed([thinking("1"), TEXT, thinking("2"), USE])
    assert (turn.reasoning, turn.text, len(turn.calls)) == ("1\n2", "a", 1)


def test_thoughts_of_a_user_are_none() -> None:
    assert turns(("user", [thinking("hm"), TEXT]))[0] == Message(role="user", text="a")


@pytest.mark.parametrize("wrong", [None, 7, ["hm"], {}])
def test_a_thought_that_is_no_text_is_named(wrong: Any) -> None:
    with pytest.raises(BadField) as refused:
        turns(("user", "q"), ("assistant", [TEXT, {"type": "thinking", "thinking": wrong}]))
    assert refused.value.param == "messages[1].content[1].thinking"
