"""Items become turns as chat completions would have them, and are kept in a form that reads the
same again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.errors import BadField, NotSupported
from mlxcel.core.request import Message, ToolCall
from mlxcel.protocols.openai import chat
from mlxcel.protocols.responses.sealed import opened, sealed
from tests.protocols.responses.reading import items_read, read_body, responses_read
from tests.protocols.samples import RULES, SETTINGS

ASKED = {"type": "message", "role": "user", "content": "q"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "7"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
USER = Message(role="user", text="q")
CALLED = ToolCall(id="c", name="f", arguments="{}")
TOOL = Message(role="tool", text="7", call_id="c")


def messages(*items: Any, **how: Any) -> tuple[Message, ...]:
    return items_read(list(items), **how).request.chat.messages


def test_a_string_is_one_turn_of_the_user() -> None:
    read = responses_read(input="hi")
    assert read.request.chat.messages == (Message(role="user", text="hi"),)
    assert read.input_items == (
        {
            "id": "msg_0000000000000001",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "hi"}],
        },
    )


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        pytest.param(
            [{"role": "user", "content": "q"}],
            [USER],
            id="bare-role",
        ),
        pytest.param(
            [ASKED, CALL, RESULT],
            [USER, Message(role="assistant", calls=(CALLED,)), TOOL],
            id="call-and-output",
        ),
        pytest.param(
            [ASKED, CALL, CALL | {"call_id": "d"}, RESULT],
            [
                USER,
                Message(
                    role="assistant", calls=(CALLED, ToolCall(id="d", name="f", arguments="{}"))
                ),
                TOOL,
            ],
            id="calls-share-a-turn",
        ),
        pytest.param(
            [ASKED, SAID, CALL, RESULT],
            [USER, Message(role="assistant", text="a", calls=(CALLED,)), TOOL],
            id="words-before-a-call",
        ),
        pytest.param(
            [ASKED, CALL, SAID, RESULT],
            [USER, Message(role="assistant", text="a", calls=(CALLED,)), TOOL],
            id="words-behind-a-call",
        ),
        pytest.param(
            [ASKED, SAID, SAID, ASKED],
            [USER, Message(role="assistant", text="a"), Message(role="assistant", text="a"), USER],
            id="two-answers",
        ),
        pytest.param(
            [ASKED, THOUGHT, CALL, RESULT, THOUGHT, SAID, ASKED],
            [
                USER,
                Message(role="assistant", reasoning="hm", calls=(CALLED,)),
                TOOL,
                Message(role="assistant", text="a", reasoning="hm"),
                USER,
            ],
            id="thoughts-belong-to-what-follows",
        ),
        pytest.param(
            [THOUGHT, ASKED, SAID],
            [USER, Message(role="assistant", text="a")],
            id="thoughts-of-nobody",
        ),
        pytest.param([ASKED, THOUGHT], [USER], id="thoughts-at-the-end"),
        pytest.param([ASKED, {"type": "reasoning", "summary": []}], [USER], id="empty-thoughts"),
        pytest.param(
            [{"role": "developer", "content": "d"}, ASKED],
            [Message(role="developer", text="d"), USER],
            id="developer",
        ),
        pytest.param(
            [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, ASKED],
            [Message(role="system", text="s\n\nd"), USER],
            id="one-leading-system-turn",
        ),
        pytest.param(
            [ASKED, {"role": "system", "content": "s"}, ASKED],
            [USER, Message(role="system", text="s"), USER],
            id="system-in-the-middle",
        ),
        pytest.param(
            [ASKED, {"type": "compaction", "encrypted_content": sealed("so far")}, ASKED],
            [USER, Message(role="system", text="so far"), USER],
            id="compaction",
        ),
        pytest.param(
            [ASKED, {"type": "reasoning", "summary": [], "encrypted_content": sealed("hm")}, SAID],
            [USER, Message(role="assistant", text="a", reasoning="hm")],
            id="sealed-thoughts",
        ),
        pytest.param(
            [ASKED, {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}, SAID],
            [USER, Message(role="assistant", text="a")],
            id="thoughts-sealed-elsewhere",
        ),
        pytest.param(
            [{"role": "user", "content": [{"type": "text", "text": "q"}], "name": "n", "x": 1}],
            [Message(role="user", text="q", name="n")],
            id="name-and-extra-keys",
        ),
        pytest.param(
            [ASKED, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
            [USER, Message(role="assistant", text="no")],
            id="refusal",
        ),
    ],
)
def test_items_become_turns(items: list[Any], turns: list[Message]) -> None:
    assert list(messages(*items)) == turns


def test_instructions_stand_in_front_of_the_history() -> None:
    history = items_read([{"role": "system", "content": "s"}, ASKED]).input_items
    told = messages(ASKED, history=history, instructions="i")
    assert told == (Message(role="system", text="i\n\ns"), USER, USER)


def test_thoughts_of_the_history_are_not_read_again() -> None:
    history = items_read([ASKED, THOUGHT, SAID]).input_items
    assert messages(ASKED, history=history) == (USER, Message(role="assistant", text="a"), USER)


@pytest.mark.parametrize(
    "output",
    [
        [{"type": "input_text", "text": "7"}],
        [{"type": "output_text", "text": "7"}],
        "7",
    ],
)
def test_tool_output_as_parts(output: Any) -> None:
    """D4 of the public faults."""
    empty = {"type": "reasoning", "summary": []}
    turns = messages(ASKED, CALL, RESULT | {"output": output}, empty)
    assert turns == (USER, Message(role="assistant", calls=(CALLED,)), TOOL)


def test_parts_of_tool_output_are_joined_by_lines() -> None:
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "x", "é": 1},
        {"type": "text", "text": "b"},
    ]
    turn = messages(CALL, RESULT | {"output": parts})[-1]
    assert turn.text == 'a\n{"type": "x", "é": 1}\nb'


def test_the_same_conversation_as_in_chat() -> None:
    read = chat.read(
        {
            "model": "tiny",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "q"},
                {
                    "role": "assistant",
                    "content": "a",
                    "tool_calls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{}"},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "7"},
            ],
        },
        request_id="r",
        settings=SETTINGS,
        received_s=0.0,
        rules=RULES,
    )
    assert messages(ASKED, SAID, CALL, RESULT, instructions="s") == read.request.chat.messages


@pytest.mark.parametrize(
    ("param", "item"),
    [
        pytest.param("input[0].type", {"type": "compaction_trigger"}, id="unknown-kind"),
        pytest.param("input[0].type", {"text": "hi"}, id="no-kind"),
        pytest.param("input[0].type", {"type": 7}, id="kind-as-number"),
        pytest.param("input[0].role", {"role": "tool", "content": "x"}, id="role"),
        pytest.param("input[0].content", {"role": "user"}, id="no-content"),
        pytest.param("input[0].content", {"role": "user", "content": {}}, id="content-as-object"),
        pytest.param(
            "input[0].content[0].type",
            {"role": "user", "content": [{"type": "input_video"}]},
            id="unknown-part",
        ),
        pytest.param(
            "input[0].content[0].type",
            {"role": "user", "content": [{"type": "input_file", "file_data": "x"}]},
            id="document",
        ),
        pytest.param(
            "input[0].content[0].file_id",
            {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
            id="uploaded-image",
        ),
        pytest.param(
            "input[0].content[0].image_url",
            {"role": "user", "content": [{"type": "input_image"}]},
            id="image-of-nothing",
        ),
        pytest.param("input[0].call_id", CALL | {"call_id": None}, id="call-without-id"),
        pytest.param("input[0].arguments", CALL | {"arguments": {}}, id="arguments-as-object"),
        pytest.param("input[0].output", RESULT | {"output": None}, id="no-output"),
        pytest.param("input[0].output", RESULT | {"output": {}}, id="output-as-object"),
        pytest.param(
            "input[0].content[0].type",
            {"type": "reasoning", "content": [{"type": "image", "text": "x"}]},
            id="thought-of-another-kind",
        ),
        pytest.param(
            "input[0].encrypted_content",
            {"type": "compaction", "encrypted_content": "gAAAA"},
            id="compaction-of-others",
        ),
        pytest.param("input[0].id", {"type": "item_reference", "id": "msg_9"}, id="reference"),
        pytest.param("input[0].id", {"id": "msg_9"}, id="bare-reference"),
    ],
)
def test_an_item_that_cannot_be_used_is_named(param: str, item: Any) -> None:
    with pytest.raises(BadField) as caught:
        items_read([item])
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("image", {"type": "input_image", "image_url": "data:,", "detail": "low"}),
        ("image", {"type": "image_url", "image_url": {"url": "data:,"}}),
        ("video", {"type": "video_url", "video_url": {"url": "data:,"}}),
        ("audio", {"type": "input_audio", "input_audio": {"data": ""}}),
    ],
)
def test_media_are_refused_by_name_wherever_they_stand(kind: str, part: dict[str, Any]) -> None:
    for item in (ASKED | {"content": [part]}, RESULT | {"output": [part]}):
        with pytest.raises(NotSupported, match=f"^{kind} input is not supported"):
            items_read([item])


def test_an_item_is_found_by_its_id() -> None:
    history = items_read([ASKED | {"id": "msg_h"}]).input_items
    reference = {"type": "item_reference"}
    named = [reference | {"id": "msg_h"}, {"id": "msg_s"}]
    kept = {"msg_s": items_read([SAID]).input_items[0]}
    read = read_body({"model": "tiny", "input": named}, history=history, find=kept.get)
    assert read.request.chat.messages == (USER, USER, Message(role="assistant", text="a"))


def test_own_ids_are_kept() -> None:
    read = items_read([ASKED | {"id": "msg_x"}, CALL, RESULT, {**THOUGHT, "id": "rs_x"}, SAID])
    ids = [item["id"] for item in read.input_items]
    assert ids == [
        "msg_x",
        "fc_0000000000000001",
        "fco_0000000000000002",
        "rs_x",
        "msg_0000000000000003",
    ]


@given(
    st.lists(
        st.sampled_from(
            [
                ASKED,
                CALL,
                RESULT,
                SAID,
                THOUGHT,
                {"role": "system", "content": [{"type": "input_text", "text": "s"}]},
                RESULT | {"output": [{"type": "input_text", "text": "a"}, {"type": "x"}]},
                {"type": "compaction", "encrypted_content": sealed("c")},
            ]
        ),
        max_size=8,
    )
)
def test_what_is_kept_reads_like_what_was_sent(items: list[Any]) -> None:
    first = items_read([*items, ASKED])
    again = items_read(first.input_items and list(first.input_items))
    assert again.request.chat.messages == first.request.chat.messages
    assert again.input_items == first.input_items


@given(st.text())
def test_what_is_sealed_can_be_opened(text: str) -> None:
    assert opened(sealed(text)) == text


@pytest.mark.parametrize("content", ["", "b64:é", "b64:///", "b64:" + "/w==", "text"])
def test_what_was_not_sealed_here_is_not_opened(content: str) -> None:
    assert opened(content) is None
