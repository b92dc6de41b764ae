"""Tools of a Messages request and the choice among them (http-anthropic, 5)."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.request import ToolChoice, ToolMode
from tests.protocols.anthropic.reading import CLOCK, messages_read
from tests.protocols.samples import RULES

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
NAMELESS = {"input_schema": {"type": "object"}}
STRICT = replace(RULES, strict_tools=True)


def choice(sent: Any, **fields: Any) -> ToolChoice:
    return messages_read(tool_choice=sent, tools=[CLOCK], **fields).request.chat.tool_choice


def test_a_tool_reaches_the_template_as_a_function() -> None:
    sent = CLOCK | {"description": "Tells the time.", "cache_control": {"type": "ephemeral"}}
    [tool] = messages_read(tools=[sent]).request.chat.tools
    assert (tool.name, tool.parameters) == ("clock", CLOCK["input_schema"])
    assert tool.sent == {
        "type": "function",
        "function": {
            "name": "clock",
            "description": "Tells the time.",
            "parameters": CLOCK["input_schema"],
        },
    }
    assert [*tool.sent["function"]] == ["name", "description", "parameters"]


def test_tools_of_anthropics_own_are_left_out_and_named() -> None:
    read = messages_read(tools=[SEARCH, CLOCK, NAMELESS, {"name": "x", "input_schema": None}])
    assert [tool.name for tool in read.request.chat.tools] == ["clock"]
    assert read.ignored_tools == ("web_search_20250305", "unnamed", "x")


def test_they_may_be_refused() -> None:
    assert messages_read(tools=[CLOCK], rules=STRICT).ignored_tools == ()
    with pytest.raises(BadField) as refused:
        messages_read(tools=[CLOCK, SEARCH], rules=STRICT)
    assert refused.value.param == "tools[1]"
    assert "web_search_20250305" in refused.value.message


def test_the_limit_counts_those_that_are_left() -> None:
    assert len(messages_read(tools=[CLOCK] * 128 + [SEARCH]).request.chat.tools) == 128
    with pytest.raises(BadField) as refused:
        messages_read(tools=[CLOCK] * 129)
    assert refused.value.param == "tools"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(None, ToolChoice(), id="absent"),
        pytest.param({"type": "auto"}, ToolChoice(), id="auto"),
        pytest.param({"type": "none"}, ToolChoice(mode=ToolMode.NONE), id="none"),
        pytest.param({"type": "any"}, ToolChoice(mode=ToolMode.REQUIRED), id="any"),
        pytest.param(
            {"type": "tool", "name": "clock", "disable_parallel_tool_use": True},
            ToolChoice(mode=ToolMode.NAMED, name="clock"),
            id="tool",
        ),
        pytest.param({"type": "tool"}, ToolChoice(), id="tool-of-no-name"),
        pytest.param({"type": "x"}, ToolChoice(), id="another-kind"),
        pytest.param({}, ToolChoice(), id="no-kind"),
        pytest.param("auto", ToolChoice(), id="word"),
        pytest.param("none", ToolChoice(mode=ToolMode.NONE), id="word-none"),
        pytest.param("required", ToolChoice(mode=ToolMode.REQUIRED), id="word-required"),
    ],
)
def test_choices(sent: Any, expected: ToolChoice) -> None:
    assert choice(sent) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tool_choice": {"type": 5}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}, "tools": []}, "tool_choice"),
        ({"tool_choice": {"type": "any"}, "tools": [SEARCH]}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "no"}}, "tool_choice.name"),
        (
            {"tool_choice": {"type": "tool", "name": "web_search"}, "tools": [CLOCK, SEARCH]},
            "tool_choice.name",
        ),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [CLOCK, {"name": 5}]}, "tools[1].name"),
        ({"tools": [CLOCK | {"input_schema": "x"}]}, "tools[0].input_schema"),
        ({"tools": [CLOCK | {"description": 5}]}, "tools[0].description"),
    ],
)
def test_a_wrong_choice_or_tool_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadField) as refused:
        messages_read(**{"tools": [CLOCK]} | fields)
    assert refused.value.param == param
