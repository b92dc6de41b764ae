"""From a chat body to tools and the choice among them (contract http-openai, 6)."""

from typing import Any

import pytest

from mlxcel.core.errors import BadField, NotSupported
from mlxcel.core.request import Tool, ToolChoice, ToolMode
from tests.protocols.openai.reading import chat_read

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA},
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
JSON = {"type": "json_object"}


def named(name: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"x": value}
    return value


def test_tools_are_read_and_kept_as_sent() -> None:
    assert chat_read(tools=[WEATHER, CLOCK]).request.prompt.tools == (
        Tool(name="weather", parameters=SCHEMA, sent=WEATHER),
        Tool(name="clock", parameters={"type": "object", "properties": {}}, sent=CLOCK),
    )


def test_null_parameters_are_none() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": None}}
    assert chat_read(tools=[tool]).request.prompt.tools[0].parameters == {
        "type": "object",
        "properties": {},
    }


@pytest.mark.parametrize(
    ("sent", "choice"),
    [
        pytest.param({}, ToolChoice(), id="absent"),
        pytest.param({"tool_choice": None}, ToolChoice(), id="null"),
        pytest.param({"tool_choice": "auto"}, ToolChoice(), id="auto"),
        pytest.param({"tool_choice": "none"}, ToolChoice(mode=ToolMode.NONE), id="none"),
        pytest.param({"tool_choice": "auto", "tools": []}, ToolChoice(), id="auto-without-tools"),
        pytest.param(
            {"tool_choice": "none", "tools": [CLOCK]},
            ToolChoice(mode=ToolMode.NONE),
            id="none-with-tools",
        ),
        pytest.param(
            {"tool_choice": "required", "tools": [CLOCK]},
            ToolChoice(mode=ToolMode.REQUIRED),
            id="required",
        ),
        pytest.param(
            {"tool_choice": named("clock"), "tools": [WEATHER, CLOCK]},
            ToolChoice(mode=ToolMode.NAMED, name="clock"),
            id="named",
        ),
    ],
)
def test_tool_choice(sent: dict[str, Any], choice: ToolChoice) -> None:
    assert chat_read(**sent).request.prompt.tool_choice == choice


@pytest.mark.parametrize(
    ("choice", "tools", "param", "says"),
    [
        pytest.param("required", [], "tool_choice", "there are no tools", id="required-empty"),
        pytest.param("required", None, "tool_choice", "there are no tools", id="required-absent"),
        pytest.param(named("f"), [], "tool_choice", "there are no tools", id="named-empty"),
        pytest.param(
            named("f"),
            [WEATHER, CLOCK],
            "tool_choice.function.name",
            r'one of the tools, \["weather", "clock"\]; got "f"',
            id="undeclared",
        ),
        pytest.param(
            named(" clock"), [CLOCK], "tool_choice.function.name", 'got " clock"', id="untrimmed"
        ),
        pytest.param(
            named("Clock"), [CLOCK], "tool_choice.function.name", 'got "Clock"', id="other-case"
        ),
        pytest.param(
            named(" "), [CLOCK], "tool_choice.function.name", "name of a function", id="blank"
        ),
        pytest.param(
            named(None), [CLOCK], "tool_choice.function.name", "is required", id="nameless"
        ),
        pytest.param(
            named(7), [CLOCK], "tool_choice.function.name", "wants a string", id="name-as-number"
        ),
        pytest.param(
            {"type": "custom", "custom": {"name": "clock"}},
            [CLOCK],
            "tool_choice.type",
            'wants "function", got "custom"',
            id="custom",
        ),
        pytest.param(
            {"function": {"name": "clock"}}, [CLOCK], "tool_choice.type", "is required", id="bare"
        ),
        pytest.param(
            {"type": "function"}, [CLOCK], "tool_choice.function", "is required", id="no-function"
        ),
        pytest.param("any", [CLOCK], "tool_choice", 'got string "any"', id="other-word"),
        pytest.param("Required", [CLOCK], "tool_choice", 'got string "Required"', id="word-case"),
        pytest.param("named", [CLOCK], "tool_choice", 'got string "named"', id="our-own-word"),
        pytest.param(["auto"], [CLOCK], "tool_choice", "got array", id="array"),
        pytest.param(True, [CLOCK], "tool_choice", "got boolean true", id="boolean"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(
    choice: Any, tools: Any, param: str, says: str
) -> None:
    with pytest.raises(BadField, match=says) as caught:
        chat_read(tools=tools, tool_choice=choice)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("tools", "param", "says"),
    [
        pytest.param("f", "tools", 'wants an array, got string "f"', id="no-array"),
        pytest.param([CLOCK] * 129, "tools", "at most 128 tools, got 129", id="many"),
        pytest.param([CLOCK, "f"], "tools[1]", 'wants an object, got string "f"', id="no-object"),
        pytest.param([{"function": {"name": "f"}}], "tools[0].type", "is required", id="typeless"),
        pytest.param(
            [{"type": "web_search"}],
            "tools[0].type",
            'wants "function", got "web_search"',
            id="hosted",
        ),
        pytest.param([{"type": "function"}], "tools[0].function", "is required", id="no-function"),
        pytest.param(
            [{"type": "function", "function": {}}],
            "tools[0].function.name",
            "is required",
            id="nameless",
        ),
        pytest.param([named("")], "tools[0].function.name", 'got ""', id="empty-name"),
        pytest.param(
            [{"type": "function", "function": {"name": "f", "parameters": []}}],
            "tools[0].function.parameters",
            "wants an object",
            id="parameters-as-array",
        ),
        pytest.param(
            [{"type": "function", "function": {"name": "f", "description": 5}}],
            "tools[0].function.description",
            "wants a string",
            id="description-as-number",
        ),
        pytest.param(
            [{"type": "function", "function": {"name": "f", "parameters": nested(1000)}}],
            "tools",
            "nested deeper than 64 levels",
            id="deep",
        ),
        pytest.param(
            [{"type": "function", "function": {"name": "f", "description": "x" * 1_048_577}}],
            "tools",
            "more than 1048576 characters",
            id="long",
        ),
    ],
)
def test_a_tool_that_cannot_be_used_is_named(tools: Any, param: str, says: str) -> None:
    with pytest.raises(BadField, match=says) as caught:
        chat_read(tools=tools)
    assert caught.value.param == param


def test_as_many_and_as_deep_tools_as_allowed_are_taken() -> None:
    deep = {"type": "function", "function": {"name": "f", "parameters": nested(61)}}
    assert len(chat_read(tools=[deep] * 128).request.prompt.tools) == 128


@pytest.mark.parametrize(
    "choice", [pytest.param("required", id="required"), pytest.param(named("clock"), id="named")]
)
def test_a_forced_call_goes_with_free_text_only(choice: Any) -> None:
    body = {"tools": [CLOCK], "tool_choice": choice}
    assert chat_read(**body, response_format={"type": "text"}).request.output is None
    with pytest.raises(BadField, match='"json_object" cannot be combined') as caught:
        chat_read(**body, response_format=JSON)
    assert caught.value.param == "response_format"


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_an_open_choice_goes_with_an_output_format(choice: str) -> None:
    assert chat_read(tools=[CLOCK], tool_choice=choice, response_format=JSON).request.output


@pytest.mark.parametrize(
    ("sent", "is_first"),
    [
        pytest.param({"tools": [{"type": "x"}]}, True, id="malformed-tool-first"),
        pytest.param({"tool_choice": "required"}, False, id="media-before-the-choice"),
        pytest.param({"tools": [CLOCK] * 129}, False, id="media-before-their-number"),
        pytest.param({"thinking_budget": -2}, False, id="media-before-the-budget"),
        pytest.param({"response_format": {"type": "x"}}, False, id="media-before-the-form"),
        pytest.param({"typical_p": 0}, True, id="sampling-first"),
    ],
)
def test_the_order_of_checks_around_media(sent: dict[str, Any], is_first: bool) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    with pytest.raises(BadField if is_first else NotSupported):
        chat_read(messages=[{"role": "user", "content": [image]}], **sent)
