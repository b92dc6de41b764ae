"""What the template is told, and by whom."""

from typing import Any

import pytest

from mlxcel.core.errors import BadRequest
from mlxcel.core.request import Message, Tool, ToolCall, ToolChoice, ToolMode
from mlxcel.generation.render import render, template_kwargs
from tests.generation.speaking import CALLS, THINKS, TURNS, USER_HI, WEATHER, asked, chat_model
from tests.settings import settings

TIME = Tool(name="time", parameters={}, sent={"type": "function", "function": {"name": "time"}})
NAMED = ToolChoice(mode=ToolMode.NAMED, name="time")
LOW = {"reasoning_effort": "low"}
THOUGHT = Message(role="assistant", text="<think>a</think>b", reasoning="r")


def kwargs(
    sent: dict[str, Any] | None = None,
    live: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    request = asked(prompt={"kwargs": sent or {}}, settings=settings(template_kwargs=live or {}))
    model = chat_model(words=THINKS, **(options or {}))
    return template_kwargs(request, model)


def text(*messages: Message, source: str = TURNS, words: tuple[str, ...] = (), **how: Any) -> str:
    request = asked(*messages, prompt=how)
    model = chat_model(source, words)
    return render(request, model, template_kwargs(request, model)).text


def test_request_wins_over_the_server_key_by_key() -> None:
    live = {"preserve_thinking": True, "enable_thinking": False}
    assert kwargs(live=live, sent={"preserve_thinking": False}) == {
        "preserve_thinking": False,
        "enable_thinking": False,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {}, id="nothing-by-itself"),
        pytest.param(
            {"live": {"enable_thinking": False}}, {"enable_thinking": False}, id="kwargs-flag"
        ),
        pytest.param(
            {"live": {"enable_thinking": False}, "options": {"thinks": True}},
            {"enable_thinking": True},
            id="dedicated-flag-beats-the-kwargs-flag",
        ),
        pytest.param(
            {"options": {"thinks": False}, "sent": {"enable_thinking": True}},
            {"enable_thinking": True},
            id="request-beats-the-dedicated-flag",
        ),
        pytest.param(
            {
                "live": {"reasoning_effort": "low"},
                "options": {"effort": "high"},
            },
            {"reasoning_effort": "high"},
            id="effort",
        ),
        pytest.param(
            {"live": LOW},
            LOW,
            id="default-effort-leaves-the-kwargs-flag",
        ),
        pytest.param(
            {
                "options": {"effort": "high"},
                "sent": LOW,
            },
            LOW,
            id="effort-of-the-request",
        ),
        pytest.param(
            {"options": {"preserves_reasoning": True}},
            {"preserve_reasoning": True},
            id="preserve",
        ),
    ],
)
def test_kwarg_of_the_strongest_source(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert kwargs(**given) == expected


@pytest.mark.parametrize(
    ("sent", "old"),
    [
        pytest.param({}, "b", id="unset"),
        pytest.param({"preserve_thinking": False}, "b", id="false"),
        pytest.param({"preserve_thinking": "yes"}, "b", id="no-boolean-is-unset"),
        pytest.param({"preserve_thinking": True}, "<think>a</think>b", id="true"),
    ],
)
def test_old_thoughts_are_kept_when_asked(sent: dict[str, Any], old: str) -> None:
    source = "{% for m in messages %}{{ m.content }}{{ m.reasoning_content }};{% endfor %}"
    found = text(USER_HI, THOUGHT, USER_HI, source=source, words=THINKS, kwargs=sent)
    assert found == f"hi;{old}{'r' if old != 'b' else ''};hi;"


@pytest.mark.parametrize(
    ("caches", "sent", "told"),
    [
        pytest.param(True, {}, True, id="unset-with-a-cache"),
        pytest.param(True, {"preserve_thinking": "yes"}, True, id="no-boolean-is-unset"),
        pytest.param(True, {"preserve_thinking": None}, True, id="null-is-unset"),
        pytest.param(True, {"preserve_thinking": False}, False, id="request-says-no"),
        pytest.param(False, {}, None, id="unset-without-a-cache"),
    ],
)
def test_thoughts_are_kept_by_themselves_while_there_is_a_prompt_cache(
    caches: bool, sent: dict[str, Any], told: bool | None
) -> None:
    assert kwargs(sent=sent, options={"caches": caches}).get("preserve_thinking") is told
    model = chat_model("{% for m in messages %}{{ m.content }};{% endfor %}", THINKS, caches=caches)
    request = asked(USER_HI, THOUGHT, USER_HI, prompt={"kwargs": sent})
    found = render(request, model, template_kwargs(request, model)).text
    assert ("<think>a</think>" in found) is (told is True)


def test_server_may_say_that_thoughts_are_not_kept() -> None:
    live = {"preserve_thinking": False}
    assert kwargs(live=live, options={"caches": True}) == live


def test_thoughts_of_a_model_without_markers_are_left_alone() -> None:
    assert "<think>a</think>b" in text(USER_HI, THOUGHT, USER_HI)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        pytest.param(ToolChoice(), ["weather", "time"], id="auto"),
        pytest.param(ToolChoice(mode=ToolMode.REQUIRED), ["weather", "time"], id="required"),
        pytest.param(ToolChoice(mode=ToolMode.NONE), [], id="none"),
        pytest.param(NAMED, ["time"], id="named"),
    ],
)
def test_template_sees_the_tools_that_may_be_called(choice: ToolChoice, names: list[str]) -> None:
    source = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}."
    found = text(source=source, tools=(WEATHER, TIME), tool_choice=choice)
    assert found == " ".join([*names, "."])


@pytest.mark.parametrize(
    ("choice", "is_told"),
    [
        (ToolChoice(), False),
        (ToolChoice(mode=ToolMode.NONE), False),
        (ToolChoice(mode=ToolMode.REQUIRED), True),
        (NAMED, True),
    ],
    ids=["auto", "none", "required", "named"],
)
def test_forced_choice_is_said_in_words_too(choice: ToolChoice, is_told: bool) -> None:
    found = text(source=TURNS, tools=(WEATHER, TIME), tool_choice=choice)
    assert ("must answer by calling" in found) is is_told


def test_instruction_stays_before_an_answer_begun() -> None:
    begun = Message(role="assistant", text="Once")
    found = text(USER_HI, begun, tools=(TIME,), tool_choice=NAMED)
    assert found.index("must answer by calling") < found.index("<|end|>Once")


@pytest.mark.parametrize("content", [{}, {"text": ""}], ids=["absent", "empty"])
def test_tool_call_without_content_renders_as_one_with_empty_content(
    content: dict[str, str],
) -> None:
    call = ToolCall(id="c1", name="f", arguments="{}")
    turn = Message(role="assistant", calls=(call,), **content)
    result = Message(role="tool", text="7", call_id="c1")
    source = "{# tools tool_calls #}" + TURNS
    assert text(USER_HI, turn, result, source=source, words=CALLS) == (
        "<|user|>hi<|end|><|user|><|end|><|user|>7<|end|>"
    )


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param('{"a":"\\u00e9","b":1}', '{"a": "é", "b": 1}', id="object-written-anew"),
        pytest.param("[1", '"[1"', id="no-object"),
        pytest.param("[" * 1500, f'"{"[" * 1500}"', id="too-deep"),
    ],
)
@pytest.mark.parametrize("tools", [(), (WEATHER,)], ids=["none", "some"])
def test_template_without_tools_shows_earlier_calls_as_text(
    arguments: str, shown: str, tools: tuple[Tool, ...]
) -> None:
    calls = tuple(ToolCall(id=f"c{n}", name=n, arguments=arguments) for n in ("f", "g"))
    turn = Message(role="assistant", text="Let me see.", calls=calls)
    found = text(USER_HI, turn, USER_HI, tools=tools)
    expected = "".join(
        f'\n<tool_call>\n{{"name": "{name}", "arguments": {shown}}}\n</tool_call>' for name in "fg"
    )
    assert f"<|user|>Let me see.{expected}<|end|>" in found


def test_turn_of_calls_at_the_end_is_no_answer_begun_although_it_has_text() -> None:
    call = ToolCall(id="c1", name="f", arguments="{}")
    found = text(USER_HI, Message(role="assistant", calls=(call,)))
    assert found.endswith("</tool_call><|end|>")


@pytest.mark.parametrize("word", ["tools", "tool_calls"])
def test_template_that_knows_of_calls_shows_them_itself(word: str) -> None:
    call = ToolCall(id="c1", name="f", arguments="{}")
    turn = Message(role="assistant", text="a", calls=(call,))
    assert "<tool_call>" not in text(USER_HI, turn, USER_HI, source=f"{{# {word} #}}" + TURNS)


def test_refusal_of_the_template_is_a_bad_request() -> None:
    with pytest.raises(BadRequest, match="no system"):
        text(source="{{ raise_exception('no system') }}")
