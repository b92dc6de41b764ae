"""Messages: every role, every form of content, calls, reasoning, and what is refused."""

from typing import Any

import pytest

from mlxcel.core.errors import BadField, NotSupported
from mlxcel.core.request import Message, ToolCall
from tests.protocols.openai.reading import chat_read

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "http://x/a.png"}}
USER = {"role": "user", "content": "q"}
PAYLOADS: dict[str, Any] = {
    "image_url": {"url": "http://x/a.png", "detail": "low", "max_soft_tokens": 70},
    "video_url": {"url": "http://x/a.mp4", "fps": 2},
    "input_audio": {"data": "AAAA", "format": "wav"},
}


def messages(*entries: Any) -> tuple[Message, ...]:
    return chat_read(messages=list(entries)).request.prompt.messages


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_a_role_is_kept(role: str) -> None:
    assert messages({"role": role, "content": "x"})[0] == Message(role=role, text="x")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"content": None}, id="null"),
        pytest.param({}, id="absent"),
        pytest.param({"content": ""}, id="empty"),
    ],
)
def test_a_call_turn_without_content_reads_the_same(content: dict[str, Any]) -> None:
    turn = {"role": "assistant", "tool_calls": [CALL]} | content
    answer = {"role": "tool", "tool_call_id": "c1", "content": "7"}
    assert messages(USER, turn, answer)[1:] == (
        Message(role="assistant", calls=(ToolCall(id="c1", name="f", arguments="{}"),)),
        Message(role="tool", text="7", call_id="c1"),
    )


def test_text_parts_are_joined_without_a_separator() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert messages({"role": "user", "content": parts})[0].text == "ab"


def test_both_spellings_of_reasoning_may_stand_together() -> None:
    turn = {"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"}
    assert messages(USER, turn)[1].reasoning == "r"
    assert messages(USER, {"role": "assistant", "reasoning": "r"})[1].reasoning == "r"


def test_a_name_is_kept() -> None:
    assert messages(USER | {"name": "bob"})[0].name == "bob"


@pytest.mark.parametrize(
    ("entries", "param"),
    [
        pytest.param([], "messages", id="none"),
        pytest.param([{"role": "user", "content": "  \n"}], "messages", id="blank"),
        pytest.param(["hi"], "messages[0]", id="not-an-object"),
        pytest.param([{"content": "x"}], "messages[0].role", id="no-role"),
        pytest.param([{"role": "robot", "content": "x"}], "messages[0].role", id="unknown-role"),
        pytest.param([USER, {"role": "user", "content": 7}], "messages[1].content", id="content"),
        pytest.param(
            [{"role": "user", "content": ["x"]}], "messages[0].content[0]", id="part-as-string"
        ),
        pytest.param(
            [{"role": "user", "content": [{"type": "hologram"}]}],
            "messages[0].content[0].type",
            id="unknown-part",
        ),
        pytest.param(
            [{"role": "user", "content": [{"type": "text"}]}],
            "messages[0].content[0].text",
            id="text-part-without-text",
        ),
        pytest.param(
            [USER, {"role": "assistant", "tool_calls": [{"id": "c"}]}],
            "messages[1].tool_calls[0].type",
            id="call-without-type",
        ),
        pytest.param(
            [USER, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}],
            "messages[1].tool_calls[0].function",
            id="call-without-function",
        ),
        pytest.param(
            [
                USER,
                {
                    "role": "assistant",
                    "tool_calls": [CALL | {"function": {"name": "f", "arguments": {}}}],
                },
            ],
            "messages[1].tool_calls[0].function.arguments",
            id="arguments-as-object",
        ),
        pytest.param(
            [USER, {"role": "assistant", "tool_calls": [CALL | {"type": "custom"}]}],
            "messages[1].tool_calls[0].type",
            id="call-of-another-type",
        ),
        pytest.param(
            [{"role": "user", "content": [IMAGE, {"type": "hologram"}]}],
            "messages[0].content[1].type",
            id="malformed-before-media",
        ),
    ],
)
def test_a_message_that_cannot_be_used_is_named(entries: list[Any], param: str) -> None:
    with pytest.raises(BadField) as caught:
        messages(*entries)
    assert caught.value.param == param


def test_missing_messages_are_named() -> None:
    with pytest.raises(BadField, match="messages: is required"):
        chat_read(messages=None)


@pytest.mark.parametrize(
    ("kind", "word"),
    [("image_url", "image"), ("input_audio", "audio"), ("video_url", "video")],
    ids=["image", "audio", "video"],
)
def test_media_is_not_supported(kind: str, word: str) -> None:
    part = {"type": kind, kind: PAYLOADS[kind]}
    with pytest.raises(NotSupported, match=f"^{word} input is not supported") as caught:
        messages({"role": "user", "content": [{"type": "text", "text": "x"}, part]})
    assert (caught.value.status, caught.value.param) == (501, "messages[0].content[1]")


@pytest.mark.parametrize(
    ("kind", "payload", "place"),
    [
        pytest.param("image_url", None, "", id="image-without-one"),
        pytest.param("image_url", "https://x", "", id="image-as-text"),
        pytest.param("image_url", {}, ".url", id="image-without-url"),
        pytest.param("image_url", {"url": 5}, ".url", id="image-url-as-number"),
        pytest.param("image_url", {"url": "x", "detail": "sharp"}, ".detail", id="detail"),
        pytest.param(
            "image_url", {"url": "x", "max_soft_tokens": "9"}, ".max_soft_tokens", id="soft-tokens"
        ),
        pytest.param("video_url", {"url": "x", "fps": "2"}, ".fps", id="fps"),
        pytest.param("input_audio", {"format": "wav"}, ".data", id="audio-without-data"),
        pytest.param("input_audio", {"data": "x", "format": 1}, ".format", id="audio-format"),
    ],
)
def test_a_bad_payload_is_told_before_media_is_refused(kind: str, payload: Any, place: str) -> None:
    with pytest.raises(BadField) as caught:
        messages({"role": "user", "content": [{"type": kind, kind: payload}]})
    assert caught.value.param == f"messages[0].content[0].{kind}{place}"


def test_details_are_read_in_any_case() -> None:
    with pytest.raises(NotSupported):
        messages(
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "x", "detail": "HIGH"}}],
            }
        )


def test_more_messages_than_any_window_holds_are_refused() -> None:
    with pytest.raises(BadField, match="at most 65536 messages, got 65537"):
        messages(*[USER] * 65_537)


def test_a_media_part_is_input_enough() -> None:
    with pytest.raises(NotSupported):
        messages({"role": "user", "content": [IMAGE]})


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"top_logprobs": 2}, id="top_logprobs"),
        pytest.param({"xtc_probability": -1}, id="xtc_probability"),
        pytest.param({"xtc_threshold": 0.6}, id="xtc_threshold"),
        pytest.param({"top_n_sigma": -1}, id="top_n_sigma"),
        pytest.param({"typical_p": 0}, id="typical_p"),
        pytest.param({"temperature": "hot"}, id="temperature"),
        pytest.param({"chat_template_kwargs": []}, id="chat_template_kwargs"),
    ],
)
def test_any_other_field_is_told_before_media(sent: dict[str, Any]) -> None:
    with pytest.raises(BadField) as caught:
        chat_read(messages=[{"role": "user", "content": [IMAGE]}], **sent)
    assert caught.value.param in sent
