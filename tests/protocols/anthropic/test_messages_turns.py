"""Blocks and system texts as turns (http-anthropic, 4 and 7)."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField, NotSupported
from mlxcel.core.request import Message, ToolCall
from tests.protocols.anthropic.reading import messages_read, turns
from tests.protocols.samples import RULES


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}


def document(said: str) -> dict[str, Any]:
    return {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": said},
    }


def user(said: str) -> Message:
    return Message(role="user", text=said)


def tool(said: str, call_id: str = "c") -> Message:
    return Message(role="tool", text=said, call_id=call_id)


def system(said: str) -> Message:
    return Message(role="system", text=said)


def result(content: Any, call_id: str = "c") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


USE = {"type": "tool_use", "id": "c", "name": "clock", "input": {"city": "Tromsø"}}
CALL = ToolCall(id="c", name="clock", arguments='{"city": "Tromsø"}')
URL = {"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/a.png"}}
EMPTY = {"type": "image", "source": {"type": "base64", "data": ""}}
OTHER = {"type": "image", "source": {"type": "file", "file_id": "f"}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("a", [user("a")], id="string"),
        pytest.param([text("a"), text("b")], [user("a\nb")], id="text"),
        pytest.param([text("a"), document("d")], [user("a\nd")], id="document"),
        pytest.param(
            [text("a"), {"type": "document", "source": {"type": "base64", "data": "x"}}],
            [user("a")],
            id="another-document",
        ),
        pytest.param([text("a"), EMPTY, OTHER, {"type": "image"}], [user("a")], id="no-image"),
        pytest.param(
            [text("a"), {"type": "redacted_thinking", "data": "x"}, {"type": "search"}, USE],
            [user("a")],
            id="left-out",
        ),
        pytest.param([result("r")], [tool("r")], id="result"),
        pytest.param([result(None)], [tool("")], id="empty-result"),
        pytest.param([result([text("r"), document("d")])], [tool("r\nd")], id="result-of-blocks"),
        pytest.param(
            [result("1", "c"), text("a"), result("2", "d")],
            [user("a"), tool("1", "c"), tool("2", "d")],
            id="text-and-results",
        ),
    ],
)
def test_what_a_user_says(content: Any, expected: list[Message]) -> None:
    assert list(turns(("user", content))) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param([text("a"), text("b")], Message(role="assistant", text="a\nb"), id="text"),
        pytest.param([USE], Message(role="assistant", calls=(CALL,)), id="call"),
        pytest.param(
            [{"type": "thinking", "thinking": "hm", "signature": ""}, text("a"), USE],
            Message(role="assistant", text="a", reasoning="hm", calls=(CALL,)),
            id="all",
        ),
        pytest.param([text("a"), result("r"), URL], Message(role="assistant", text="a"), id="user"),
    ],
)
def test_what_the_assistant_said(content: Any, expected: Message) -> None:
    assert list(turns(("user", "q"), ("assistant", content), ("user", "r"))) == [
        user("q"),
        expected,
        user("r"),
    ]


@pytest.mark.parametrize("fields", [{}, {"id": None, "input": None}, {"id": ""}])
def test_a_call_without_an_id_gets_one(fields: dict[str, Any]) -> None:
    sent = {"type": "tool_use", "name": "clock"} | fields
    [call] = turns(("assistant", [sent]))[0].calls
    assert (call.name, call.arguments) == ("clock", "{}")
    assert len(call.id) == len("toolu_") + 16


@pytest.mark.parametrize(("depth", "is_taken"), [(63, True), (65, False), (1000, False)])
def test_an_input_is_no_deeper_than_templates_can_walk(depth: int, is_taken: bool) -> None:
    given: dict[str, Any] = {}
    for _ in range(depth):
        given = {"a": given}
    sent = ("assistant", [USE | {"input": given}])
    if is_taken:
        assert turns(sent)[0].calls
        return
    with pytest.raises(BadField) as refused:
        turns(sent)
    assert refused.value.param == "messages[0].content[0].input"


@pytest.mark.parametrize("block", [URL, result([text("r"), URL])], ids=["user", "result"])
def test_an_image_is_refused_where_it_stands(block: Any) -> None:
    with pytest.raises(NotSupported) as refused:
        turns(("user", "a"), ("user", [text("b"), block]))
    place = "messages[1].content[1]"
    assert str(refused.value.param).startswith(place)
    assert place in refused.value.message
    assert "10.0.0.1" not in refused.value.message


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (None, "messages[0].content"),
        (5, "messages[0].content"),
        ([5], "messages[0].content[0]"),
        ([{}], "messages[0].content[0].type"),
        ([{"type": "text"}], "messages[0].content[0].text"),
        ([{"type": "tool_result", "content": "r"}], "messages[0].content[0].tool_use_id"),
        ([result(5)], "messages[0].content[0].content"),
        ([result([{"type": "text"}])], "messages[0].content[0].content[0].text"),
        ([{"type": "document", "source": {"type": "text"}}], "messages[0].content[0].source.data"),
    ],
)
def test_a_wrong_block_is_named(content: Any, param: str) -> None:
    with pytest.raises(BadField) as refused:
        turns(("user", content))
    assert refused.value.param == param


@pytest.mark.parametrize("role", ["developer", "tool", "", None])
def test_another_role_is_refused(role: Any) -> None:
    with pytest.raises(BadField) as refused:
        turns((role, "a"))
    assert refused.value.param == "messages[0].role"


@pytest.mark.parametrize(
    "sent",
    [
        [("user", " ")],
        [("system", "a")],
        [("user", [])],
        [("assistant", [{"type": "thinking", "thinking": ""}])],
    ],
)
def test_somebody_has_to_say_something(sent: Any) -> None:
    with pytest.raises(BadField, match=r"^messages: wants at least one message"):
        turns(*sent, system="s")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([("user", "a")], [system("S"), user("a")], id="none"),
        pytest.param(
            [("system", "x"), ("system", [text("y")]), ("user", "a")],
            [system("S\n\nx\n\ny"), user("a")],
            id="head",
        ),
        pytest.param(
            [("user", "a"), ("system", "x"), ("user", "b")],
            [system("S"), user("a"), user("x\n\nb")],
            id="before-a-user",
        ),
        pytest.param(
            [("user", "a"), ("system", "x"), ("assistant", "b"), ("user", "c")],
            [system("S"), user("a"), Message(role="assistant", text="b"), user("x\n\nc")],
            id="before-the-next-user",
        ),
        pytest.param(
            [("user", "a"), ("system", "x"), ("system", "y")],
            [system("S"), user("a\n\nx\n\ny")],
            id="end",
        ),
        pytest.param(
            [("user", [result("r")]), ("system", "x")],
            [system("S"), tool("r\n\nx")],
            id="behind-a-result",
        ),
        pytest.param(
            [("user", "a"), ("assistant", "b"), ("system", "x")],
            [system("S\n\nx"), user("a"), Message(role="assistant", text="b")],
            id="behind-the-assistant",
        ),
        pytest.param([("user", "a"), ("system", " ")], [system("S"), user("a")], id="blank"),
    ],
)
def test_system_turns_make_no_turn_of_their_own(sent: Any, expected: list[Message]) -> None:
    assert list(turns(*sent, system="S")) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("s", "s"),
        ([text("s"), text("t")], "s\nt"),
        ([], None),
        ("", None),
        (" \n", None),
        ([text(" ")], None),
        (None, None),
    ],
)
def test_forms_of_the_system_text(given: Any, expected: str | None) -> None:
    head = [] if expected is None else [system(expected)]
    assert list(turns(("user", "a"), system=given)) == [*head, user("a")]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (5, "system"),
        ([5], "system[0]"),
        ([{"type": "text"}], "system[0].text"),
        ([text("a"), {"type": "image"}], "system[1].type"),
    ],
)
def test_a_wrong_system_text_is_named(given: Any, param: str) -> None:
    with pytest.raises(BadField) as refused:
        turns(("user", "a"), system=given)
    assert refused.value.param == param


STAMP = "x-anthropic-billing-header: cch=4be20;"
PINNED = "x-anthropic-billing-header: cch=fffff;"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(STAMP, PINNED, id="string"),
        pytest.param([text(STAMP), text("b")], f"{PINNED}\nb", id="first-block"),
        pytest.param([text("a"), text(STAMP)], f"a\n{PINNED}", id="second-block"),
        pytest.param(f"a\n{STAMP}", f"a\n{STAMP}", id="not-at-the-beginning"),
        pytest.param([text(f" {STAMP}")], f" {STAMP}", id="behind-a-blank"),
    ],
)
def test_a_stamp_is_pinned_where_a_system_text_begins_with_it(given: Any, expected: str) -> None:
    said = [("system", STAMP), ("user", STAMP)]
    assert list(turns(*said, system=given)) == [system(f"{expected}\n\n{STAMP}"), user(STAMP)]
    raw = given if isinstance(given, str) else "\n".join(block["text"] for block in given)
    off = replace(RULES, pins_stamp=False)
    assert turns(*said, system=given, rules=off)[0].text == f"{raw}\n\n{STAMP}"


def test_a_message_has_its_blocks_however_they_are_cut() -> None:
    """A text in one block, and as a string, is the same prompt."""
    plain = messages_read(system="s", messages=[{"role": "user", "content": "a"}])
    cut = messages_read(system=[text("s")], messages=[{"role": "user", "content": [text("a")]}])
    assert plain.request.chat == cut.request.chat
