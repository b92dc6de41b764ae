"""Tools of a Responses request: functions flat, other kinds left out, the choice among them."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.request import ToolChoice, ToolMode
from mlxcel.protocols.openai import chat
from tests.protocols.responses.reading import WEATHER, responses_read
from tests.protocols.samples import RULES, SETTINGS

SEARCH = {"type": "web_search", "search_context_size": "low"}
PATCH = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}
CLOCK = {"type": "function", "name": "clock"}
STRICT = replace(RULES, strict_tools=True)


def test_a_function_has_the_form_templates_know() -> None:
    sent = WEATHER | {"strict": True, "description": None}
    (tool,) = responses_read(tools=[sent]).request.chat.tools
    function = {"name": "weather", "parameters": WEATHER["parameters"], "strict": True}
    assert tool.sent == {"type": "function", "function": function}
    nested = chat.read(
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": function}],
        },
        request_id="r",
        settings=SETTINGS,
        received_s=0.0,
        rules=RULES,
    )
    assert nested.request.chat.tools == (tool,)


@pytest.mark.parametrize("strict", [False, None])
def test_what_is_not_strict_reads_as_in_a_chat(strict: bool | None) -> None:
    sent = {"parameters": {}, "strict": strict, "description": "Tells.", "name": "f"}
    (tool,) = responses_read(tools=[{"type": "function"} | sent]).request.chat.tools
    shown = [("name", "f"), ("description", "Tells."), ("parameters", {})]
    assert [*tool.sent["function"].items()] == shown


def test_other_kinds_are_left_out_and_echoed() -> None:
    read = responses_read(tools=[SEARCH, WEATHER, PATCH, SEARCH])
    assert [tool.name for tool in read.request.chat.tools] == ["weather"]
    assert read.ignored_tools == ("web_search", "custom")
    whole = {"description": None, "parameters": WEATHER["parameters"], "strict": None}
    assert read.echoes["tools"] == [
        SEARCH,
        {"type": "function", "name": "weather", **whole},
        PATCH,
        SEARCH,
    ]


@pytest.mark.parametrize(
    ("param", "sent"),
    [
        pytest.param("tools[0]", {"tools": ["weather"]}, id="as-string"),
        pytest.param("tools[0].type", {"tools": [{"name": "weather"}]}, id="without-type"),
        pytest.param("tools[0].name", {"tools": [CLOCK | {"name": " "}]}, id="blank-name"),
        pytest.param("tools[0].parameters", {"tools": [CLOCK | {"parameters": []}]}, id="schema"),
        pytest.param("tools", {"tools": [CLOCK] * 129}, id="many"),
        pytest.param("tool_choice", {"tool_choice": "any"}, id="unknown-word"),
        pytest.param("tool_choice", {"tool_choice": 7}, id="choice-as-number"),
        pytest.param("tool_choice", {"tool_choice": "required"}, id="forced-without-tools"),
        pytest.param(
            "tool_choice",
            {"tool_choice": "required", "tools": [SEARCH]},
            id="forced-with-none-left",
        ),
        pytest.param(
            "tool_choice",
            {
                "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []},
                "tools": [CLOCK],
            },
            id="forced-with-none-allowed",
        ),
        pytest.param(
            "tool_choice.type",
            {"tool_choice": {"type": "web_search"}, "tools": [SEARCH, CLOCK]},
            id="names-another-kind",
        ),
        pytest.param(
            "tool_choice.type",
            {"tool_choice": {"type": "custom", "name": "apply_patch"}, "tools": [PATCH, CLOCK]},
            id="names-a-custom-one",
        ),
        pytest.param(
            "tool_choice.name",
            {"tool_choice": {"type": "function", "name": "weather"}, "tools": [CLOCK]},
            id="unknown-function",
        ),
        pytest.param(
            "tool_choice.tools[0].name",
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "tools": [{"type": "function", "name": "weather"}],
                },
                "tools": [CLOCK],
            },
            id="unknown-function-allowed",
        ),
        pytest.param(
            "text.format",
            {
                "tool_choice": "required",
                "tools": [CLOCK],
                "text": {"format": {"type": "json_object"}},
            },
            id="forced-beside-a-form",
        ),
    ],
)
def test_what_cannot_be_used_is_named(param: str, sent: dict[str, Any]) -> None:
    with pytest.raises(BadField) as caught:
        responses_read(**sent)
    assert caught.value.param == param


def test_other_kinds_are_refused_where_the_server_says_so() -> None:
    with pytest.raises(BadField, match=r'tools\[1\].type: wants "function".*"web_search"'):
        responses_read(STRICT, tools=[CLOCK, SEARCH])
    assert responses_read(STRICT, tools=[CLOCK] * 128)


@pytest.mark.parametrize(
    "sent",
    [
        {"type": "function", "name": "weather"},
        {"type": "function", "function": {"name": "weather"}},
    ],
    ids=["flat", "nested"],
)
def test_a_function_is_chosen(sent: dict[str, Any]) -> None:
    read = responses_read(tools=[WEATHER, CLOCK], tool_choice=sent)
    assert read.request.chat.tool_choice == ToolChoice(mode=ToolMode.NAMED, name="weather")
    assert read.echoes["tool_choice"] == {"type": "function", "name": "weather"}


@pytest.mark.parametrize("word", ["none", "auto", "required"])
def test_a_word_is_a_mode(word: str) -> None:
    read = responses_read(tools=[WEATHER], tool_choice=word)
    assert read.request.chat.tool_choice.mode == word
    assert read.echoes["tool_choice"] == word


def test_some_of_the_tools_are_allowed() -> None:
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "clock"}],
    }
    read = responses_read(tools=[WEATHER, CLOCK], tool_choice=allowed)
    assert [tool.name for tool in read.request.chat.tools] == ["clock"]
    assert read.request.chat.tool_choice == ToolChoice(mode=ToolMode.REQUIRED)
    assert read.echoes["tool_choice"] == allowed
    assert [tool["name"] for tool in read.echoes["tools"]] == ["weather", "clock"]
