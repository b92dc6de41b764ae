"""Output items that are sent back are the turn they were, thoughts and all; what other models
thought is left out wherever it stands."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.errors import BadField, ContextLengthExceeded, ErrorInfo, QueueFull
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
from mlxcel.protocols.responses.errors import error_body
from mlxcel.protocols.responses.sealed import sealed
from tests.protocols.responses.reading import frames, items_read, responses_read, whole

ASKED = {"type": "message", "role": "user", "content": "q"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "7"}
EMPTY: dict[str, Any] = {"type": "reasoning", "summary": []}
PART = {"type": "reasoning_text", "text": "hm"}
USER = Message(role="user", text="q")
CALLED = ToolCall(id="c", name="f", arguments="{}")
TOOL = Message(role="tool", text="7", call_id="c")
SEALED = ["reasoning.encrypted_content"]
END: list[Event] = [
    ChoiceFinished(FinishReason.EOS),
    Finished(
        Usage(prompt_tokens=9, completion_tokens=5),
        Timings(queued_ms=1.0, prompt_ms=2.0, decode_ms=3.0),
    ),
]


def turns(*items: Any) -> list[Message]:
    return list(items_read(list(items)).request.chat.messages)


@given(
    st.text(max_size=5),
    st.text(max_size=5),
    st.integers(0, 2),
    st.sampled_from(["kept", "sealed", "both"]),
    st.booleans(),
)
def test_output_that_is_sent_back_is_the_turn_it_was(
    thought: str, text: str, calls: int, form: str, stream: bool
) -> None:
    """By clients that keep what they see, by those that keep what is sealed, and by both."""
    deltas: list[Event] = [ReasoningDelta(thought)] if thought else []
    deltas += [TextDelta(text)] if text else []
    deltas += [ToolCallDelta(n, f"call_{n:024x}", "f", f'{{"n":{n}}}') for n in range(calls)]
    asked = responses_read(stream=stream, include=[] if form == "kept" else SEALED)
    told: list[Event] = [Accepted(9), *deltas, *END]
    answer = frames(asked, told)[-1]["response"] if stream else whole(asked, told)
    items = [_without_content(item) if form == "sealed" else item for item in answer["output"]]
    if not (text or calls):
        items = [item for item in items if item["type"] != "message"]
        assert turns(ASKED, *items, ASKED) == [USER, USER]
        return
    first, turn, *_ = turns(ASKED, *items, ASKED)
    assert first == USER
    assert (turn.role, turn.reasoning, turn.text) == ("assistant", thought, text)
    assert [call.arguments for call in turn.calls] == [f'{{"n":{n}}}' for n in range(calls)]
    sent = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert [call.id for call in turn.calls] == sent


def _without_content(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"content": None} if item["type"] == "reasoning" else item


@pytest.mark.parametrize(
    "thought",
    [
        pytest.param(EMPTY, id="empty"),
        pytest.param({"type": "reasoning"}, id="nothing"),
        pytest.param(EMPTY | {"summary": None, "content": None}, id="nulls"),
        pytest.param(EMPTY | {"content": []}, id="no-parts"),
        pytest.param(EMPTY | {"content": [PART | {"text": ""}]}, id="blank-part"),
        pytest.param(EMPTY | {"summary": [{"type": "summary_text", "text": "s"}]}, id="summary"),
        pytest.param(EMPTY | {"encrypted_content": "gAAAAABo", "id": "rs_1"}, id="of-others"),
        pytest.param(EMPTY | {"encrypted_content": "b64:%%%"}, id="broken"),
        pytest.param(EMPTY | {"encrypted_content": ""}, id="sealed-nothing"),
        pytest.param(EMPTY | {"encrypted_content": sealed("")}, id="sealed-here-and-empty"),
    ],
)
def test_thoughts_that_cannot_be_read_are_left_out(thought: Any) -> None:
    """Wherever they stand: words and the call beside them stay one turn."""
    plain: list[Any] = [ASKED, SAID, CALL, OUTPUT, ASKED]
    expected = [USER, Message(role="assistant", text="a", calls=(CALLED,)), TOOL, USER]
    assert turns(*plain) == expected
    for place in range(len(plain) + 1):
        assert turns(*plain[:place], thought, *plain[place:]) == expected
    seen = EMPTY | {"content": [PART]}
    assert turns(ASKED, thought, seen, thought, SAID)[1].reasoning == "hm"


@pytest.mark.parametrize(
    "thought",
    [
        pytest.param({"content": [PART]}, id="content"),
        pytest.param({"content": [{"text": "hm"}]}, id="part-without-a-kind"),
        pytest.param(
            {"content": [{"type": "text", "text": "h"}, PART | {"text": "m"}]}, id="parts"
        ),
        pytest.param({"encrypted_content": sealed("hm")}, id="sealed"),
        pytest.param({"content": [], "encrypted_content": sealed("hm")}, id="sealed-and-no-parts"),
        pytest.param({"content": [PART], "encrypted_content": "gAAAA"}, id="content-wins"),
        pytest.param({"content": [PART], "status": "incomplete", "x": 1}, id="other-keys"),
    ],
)
def test_a_thought_is_read_in_each_of_its_forms(thought: dict[str, Any]) -> None:
    expected = Message(role="assistant", text="a", reasoning="hm", calls=(CALLED,))
    assert turns(ASKED, EMPTY | thought, SAID, CALL, OUTPUT) == [USER, expected, TOOL]


@pytest.mark.parametrize(
    ("param", "wrong"),
    [
        ("input[0].content", {"content": "hm"}),
        ("input[0].content[0]", {"content": ["hm"]}),
        ("input[0].content[0].text", {"content": [{"type": "reasoning_text"}]}),
        ("input[0].summary", {"summary": "s"}),
        ("input[0].encrypted_content", {"encrypted_content": 7}),
    ],
)
def test_a_thought_of_no_form_is_named(param: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadField) as caught:
        turns(EMPTY | wrong, ASKED)
    assert caught.value.param == param


def test_errors_of_the_turns_name_the_field_they_came_in() -> None:
    """A15 and A11 of the public faults: no client of this route has sent `messages`."""
    told = error_body(ContextLengthExceeded(900, 512).info())["error"]
    assert (told["param"], told["code"]) == ("input", "context_length_exceeded")
    place = ErrorInfo(code="invalid_request", status=400, message="m", param="input[0].type")
    assert error_body(place)["error"]["param"] == "input[0].type"
    assert error_body(QueueFull().info())["error"]["param"] is None
