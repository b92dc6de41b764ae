"""Public faults, family A: shapes of chat answers and of what is refused."""

from collections.abc import Iterator, Sequence
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
from tests.cases.routes import MESSAGES, RESPONSES
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


# The same on the routes whose turns have another form. Their counts render what they answer.

COUNTS = "/v1/chat/completions/input_tokens"
ITEM_COUNTS = f"{RESPONSES.path}/input_tokens"
BLOCK_COUNTS = f"{MESSAGES.path}/count_tokens"


def counted(program: Program, path: str, field: str, turns: Sequence[Any]) -> int:
    status, answer = program.post(path, {"model": "any", field: turns})
    assert status == 200, answer
    return int(answer["input_tokens"])


def turns_of(*said: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in said]


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param((("developer", "Be short."), ("user", "hi")), id="the-case"),
        pytest.param(
            (("system", "a"), ("user", "b"), ("assistant", "c"), ("developer", "d"), ("user", "e")),
            id="anywhere",
        ),
    ],
)
def test_a7_developer_items_are_rendered_as_system(strict: Program, turns: Any) -> None:
    """A7: the same prompt as in chat, of items and of instructions."""
    items = turns_of(*turns)
    expected = counted(strict, COUNTS, "messages", items)
    assert counted(strict, ITEM_COUNTS, "input", items) == expected
    body = RESPONSES.body("", max_tokens=3) | {"input": items}
    assert RESPONSES.joined(stream(strict, body, path=RESPONSES.path)).counts[0] == expected
    first, *rest = items
    told = {"model": "any", "instructions": first["content"], "input": rest}
    assert strict.post(ITEM_COUNTS, told)[1]["input_tokens"] == expected


def test_a7_messages_has_no_such_role(strict: Program) -> None:
    """A7: Anthropic defines none, and says which there are."""
    body = MESSAGES.body("") | {"messages": turns_of(("developer", "a"), ("user", "hi"))}
    status, kind, answer = post_raw(strict, body, path=MESSAGES.path)
    assert (status, kind) == (400, "application/json")
    MESSAGES.assert_refused(answer)
    assert answer["error"]["message"].startswith("messages[0].role: wants one of")


def test_a9_calls_without_content_in_every_dialect(tiny_server: Program) -> None:
    """A9: a call beside nothing, beside empty text, and in the form of chat: one prompt."""
    expected = counted(tiny_server, COUNTS, "messages", _tool_turn(content=None)["messages"])
    question = {"role": "user", "content": "q"}
    use = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "7"}
    blank: list[Any] = [[use], [{"type": "text", "text": ""}, use]]
    for content in blank:
        turns = [question, *turns_of(("assistant", content), ("user", [result]))]
        assert counted(tiny_server, BLOCK_COUNTS, "messages", turns) == expected
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "7"}
    for words in ([], turns_of(("assistant", "")), turns_of(("assistant", []))):
        items = [question, *words, call, output]
        assert counted(tiny_server, ITEM_COUNTS, "input", items) == expected


@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_a11_a_late_system_item_is_refused_before_the_stream(
    system_first: Program, role: str, asked_stream: bool
) -> None:
    """A11: as in chat, naming the field that there is."""
    turns = turns_of(*((role if name == "system" else name, text) for name, text in LATE_SYSTEM))
    body = RESPONSES.body("", stream=asked_stream) | {"input": turns}
    status, kind, answer = post_raw(system_first, body, path=RESPONSES.path)
    assert (status, kind) == (400, "application/json")
    assert_error_object(answer, param="input")
    assert "System message must be at the beginning." in answer["error"]["message"]
    early = RESPONSES.body("", max_tokens=3) | {"input": turns_of(*EARLY_SYSTEM)}
    assert RESPONSES.joined(stream(system_first, early, path=RESPONSES.path)).text == "d"


def test_a11_a_late_system_message_is_moved_where_the_dialect_says_so(
    system_first: Program,
) -> None:
    """A11: Messages folds it into the turn that follows, so that such templates take it."""
    body = MESSAGES.body("", max_tokens=9) | {"messages": turns_of(*LATE_SYSTEM)}
    assert MESSAGES.joined(stream(system_first, body, path=MESSAGES.path)).text == "c\n\nd"


def test_a11_a_late_system_item_stands_where_it_was_sent(echo: Program) -> None:
    """A11: where the template takes it, as in chat."""
    turns = turns_of(*LATE_SYSTEM)
    expected = counted(echo, COUNTS, "messages", turns)
    assert counted(echo, ITEM_COUNTS, "input", turns) == expected
    body = RESPONSES.body("", max_tokens=3) | {"input": turns}
    seen = RESPONSES.joined(stream(echo, body, path=RESPONSES.path))
    assert (seen.text, seen.counts[0]) == ("d", expected)


@pytest.mark.parametrize("trap", ["divide", "undefined", "recursion", "unsafe"])
def test_a11_whatever_a_template_raises_is_an_answer_of_the_dialect(
    system_first: Program, trap: str
) -> None:
    """A11: no 500 and no stream that dies, on any of these routes."""
    for route in (MESSAGES, RESPONSES):
        for asked_stream in (True, False):
            body = route.body(trap, stream=asked_stream)
            status, kind, answer = post_raw(system_first, body, path=route.path)
            assert (status, kind) == (400, "application/json")
            route.assert_refused(answer)
