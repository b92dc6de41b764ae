"""Public faults, family A: shapes of chat answers and of what is refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cases.asking import (
    CHAT,
    assert_error_object,
    conversation,
    post_raw,
    prompt_tokens,
    stream,
    stream_chat,
)
from tests.cases.conftest import STRICT_ROLES, SYSTEM_FIRST, template_words
from tests.whole.program import Program, chat_body

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PATHS = [CHAT, "/chat/completions"]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("strict")
    with Program("model=echo", template_words(folder, STRICT_ROLES)) as program:
        yield program


@pytest.fixture(scope="module")
def system_first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("system-first")
    with Program("model=echo", template_words(folder, SYSTEM_FIRST)) as program:
        yield program


@pytest.mark.parametrize("path", PATHS)
def test_a1_object_names_are_singular(echo: Program, path: str) -> None:
    """A1: `object` had a plural. https://github.com/ml-explore/mlx-examples/pull/1119"""
    status, answer = echo.post(path, chat_body("hi", max_tokens=4))
    assert status == 200
    assert answer["object"] == "chat.completion"
    streamed = stream(
        echo, chat_body("hi", max_tokens=4, stream_options={"include_usage": True}), path=path
    )
    assert {chunk["object"] for chunk in streamed.chunks} == {"chat.completion.chunk"}
    assert streamed.is_done


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        pytest.param({"max_completion_tokens": 3}, 3, id="newer-alone"),
        pytest.param({"max_completion_tokens": 3, "max_tokens": 50}, 3, id="newer-below-older"),
        pytest.param({"max_tokens": 3, "max_completion_tokens": 50}, 50, id="newer-above-older"),
        pytest.param({"max_tokens": 3, "max_completion_tokens": None}, 3, id="newer-null"),
        pytest.param({"max_tokens": None, "max_completion_tokens": 3}, 3, id="older-null"),
        pytest.param({"n_predict": 3}, 3, id="llama-cpp-name"),
        pytest.param({"max_completion_tokens": 1}, 1, id="one"),
    ],
)
def test_a3_every_name_of_the_limit_holds(
    tiny_server: Program, limits: dict[str, Any], most: int
) -> None:
    """A3: `max_completion_tokens` was ignored; here it wins over `max_tokens`.

    https://github.com/ggml-org/llama.cpp/issues/13700
    """
    answer = tiny_server.chat("hi", **limits)
    assert answer["usage"]["completion_tokens"] == most
    assert answer["choices"][0]["finish_reason"] == "length"
    streamed = stream_chat(tiny_server, "hi", stream_options={"include_usage": True}, **limits)
    assert streamed.chunks[-1]["usage"]["completion_tokens"] == most
    assert streamed.reasons == ["length"]


def test_a3_the_model_may_stop_before_the_limit(echo: Program) -> None:
    """A3: `length` only when the limit ended it."""
    answer = echo.chat("hi", max_completion_tokens=3)
    assert answer["usage"]["completion_tokens"] == 2
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("developer", "system"),
    [
        pytest.param("Be short.", "Be short.", id="text"),
        pytest.param([{"type": "text", "text": "Be short."}], "Be short.", id="parts"),
        pytest.param("", "", id="empty"),
    ],
)
def test_a7_developer_is_rendered_as_system(strict: Program, developer: Any, system: str) -> None:
    """A7: a role OpenAI defines was refused by the template.

    https://github.com/peonist-ai/halogen-flash-server/issues/32
    """
    asked = conversation(("developer", developer), ("user", "hi"), max_tokens=3)
    same = conversation(("system", system), ("user", "hi"), max_tokens=3)
    assert prompt_tokens(strict, asked) == prompt_tokens(strict, same)
    assert stream(strict, asked).text == "hi"


@pytest.mark.parametrize("late", ["developer", "system"])
def test_a7_developer_is_taken_anywhere_in_the_conversation(strict: Program, late: str) -> None:
    """A7: agents send it in the middle, and beside a system message."""
    turns = (("system", "a"), ("user", "b"), ("assistant", "c"), (late, "d"), ("user", "e"))
    status, answer = strict.post(CHAT, conversation(*turns, max_tokens=3))
    assert status == 200, answer


def test_a7_an_unknown_role_is_named(strict: Program) -> None:
    """A7: what is no role of OpenAI's is the client's mistake, told as such."""
    status, kind, body = post_raw(strict, conversation(("critic", "a"), ("user", "hi")))
    assert (status, kind) == (400, "application/json")
    assert_error_object(body, param="messages[0].role")


def _tool_turn(**content: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": "c1", "type": "function", "function": function}]
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": calls, **content},
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
    ]
    return chat_body("", max_tokens=3) | {"messages": messages}


EMPTY_CONTENTS = [
    pytest.param({"content": None}, id="null"),
    pytest.param({}, id="absent"),
    pytest.param({"content": ""}, id="empty"),
    pytest.param({"content": []}, id="no-parts"),
    pytest.param({"content": [{"type": "text", "text": ""}]}, id="empty-part"),
]


@pytest.mark.parametrize("content", EMPTY_CONTENTS)
def test_a9_tool_call_without_content(tiny_server: Program, content: dict[str, Any]) -> None:
    """A9: an assistant turn with calls and no content failed.

    https://github.com/abetlen/llama-cpp-python/issues/1805
    """
    reference = prompt_tokens(tiny_server, _tool_turn(content=""))
    assert prompt_tokens(tiny_server, _tool_turn(**content)) == reference
    assert stream(tiny_server, _tool_turn(**content)).is_done


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("content", EMPTY_CONTENTS)
def test_a9_no_role_needs_content(tiny_server: Program, role: str, content: dict[str, Any]) -> None:
    """A9: nothing is rendered for content that is not there, in any role."""

    def body(**content: Any) -> dict[str, Any]:
        asked = conversation(("user", "a"), max_tokens=3)
        asked["messages"] += [{"role": role, **content}, {"role": "user", "content": "b"}]
        return asked

    reference = prompt_tokens(tiny_server, body(content=""))
    assert prompt_tokens(tiny_server, body(**content)) == reference


LATE_SYSTEM = (("user", "a"), ("assistant", "b"), ("system", "c"), ("user", "d"))
EARLY_SYSTEM = (("system", "c"), ("user", "a"), ("assistant", "b"), ("user", "d"))


@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_a11_late_system_message_is_refused_before_the_stream(
    system_first: Program, role: str, asked_stream: bool
) -> None:
    """A11: templates that insist on system-first made streams die.

    https://github.com/ggml-org/llama.cpp/issues/20733
    """
    turns = tuple((role if name == "system" else name, text) for name, text in LATE_SYSTEM)
    body = conversation(*turns, stream=asked_stream, max_tokens=3)
    status, kind, answer = post_raw(system_first, body)
    assert (status, kind) == (400, "application/json")
    assert_error_object(answer, param="messages")
    assert "System message must be at the beginning." in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions/input_tokens", "/apply-template"])
@pytest.mark.parametrize("last", ["d", "divide", "undefined", "recursion"])
def test_a11_whoever_renders_refuses_the_same(system_first: Program, path: str, last: str) -> None:
    """A11: the count and the rendering say what the chat says of the same messages."""
    turns = LATE_SYSTEM if last == "d" else (("user", last),)
    body = conversation(*turns)
    told = [system_first.post(where, body) for where in (CHAT, path)]
    assert told[0] == told[1]
    assert told[0][0] == 400
    assert_error_object(told[0][1], param="messages")


def test_a11_the_same_template_takes_system_first(system_first: Program) -> None:
    """A11: it is the order that is refused, not the role."""
    assert stream(system_first, conversation(*EARLY_SYSTEM, max_tokens=3)).text == "d"


def test_a11_a_template_without_that_rule_streams(echo: Program) -> None:
    """A11: a late system message is fine where the template takes it."""
    streamed = stream(echo, conversation(*LATE_SYSTEM, max_tokens=3))
    assert (streamed.text, streamed.is_done) == ("d", True)


@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize(
    "trap", ["divide", "undefined", "key", "type", "range", "unsafe", "recursion"]
)
def test_a11_whatever_a_template_raises_is_an_answer(
    system_first: Program, trap: str, asked_stream: bool
) -> None:
    """A11: no error inside a template is a 500 or a stream that dies."""
    body = conversation(("user", trap), stream=asked_stream, max_tokens=3)
    status, kind, answer = post_raw(system_first, body)
    assert (status, kind) == (400, "application/json")
    assert_error_object(answer, param="messages")
