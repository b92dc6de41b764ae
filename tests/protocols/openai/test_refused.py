"""Fields that ask for work this server does not do: refused by name, harmless at neutral."""

from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.protocols.openai.refused import REFUSALS
from tests.protocols.openai.reading import chat_read

TOOL = {"type": "function", "function": {"name": "f"}}
ASKING: dict[str, list[Any]] = {
    "n": [2, 0],
    "logprobs": [True],
    "top_logprobs": [2],
    "echo": [True],
    "reasoning_control": [True],
    "response_format": [{"type": "json_object"}, {"type": "json_schema", "json_schema": {}}],
    "thinking_budget_tokens": [0, 5],
    "reasoning_budget_tokens": [5],
    "thinking_token_budget": [5],
    "thinking_budget": [5],
    "max_pattern_size": [20],
    "tool_choice": ["required", "any", {"type": "function", "function": {"name": "f"}}],
    "tools": [[TOOL]],
}
NEUTRAL: dict[str, list[Any]] = {
    "n": [1],
    "logprobs": [False],
    "top_logprobs": [0],
    "echo": [False],
    "reasoning_control": [False],
    "response_format": [{}, {"type": "text"}, {"type": None}],
    "thinking_budget_tokens": [-1],
    "reasoning_budget_tokens": [-1],
    "thinking_token_budget": [-1],
    "thinking_budget": [-1],
    "max_pattern_size": [0],
    "tool_choice": ["auto", "none"],
    "tools": [[]],
}
WRONG_TYPE = "neither"
IGNORED = (
    *("functions", "function_call", "service_tier", "store", "metadata", "modalities"),
    *("prediction", "verbosity", "web_search_options", "id_slot", "grammar", "json_schema"),
    *("samplers", "mirostat", "reasoning_format", "add_generation_prompt"),
    *("continue_final_message", "something_new"),
)


def cases(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}-{value}")
        for name, values in table.items()
        for value in values
    ]


@pytest.mark.parametrize(("name", "value"), cases(ASKING))
def test_asking_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(BadField, match="is not supported by this server; what works is") as caught:
        chat_read(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(("name", "value"), cases(NEUTRAL))
def test_neutral_is_accepted_and_changes_nothing(name: str, value: Any) -> None:
    assert chat_read(**{name: value}) == chat_read()


@pytest.mark.parametrize("name", sorted(set(ASKING) - {"tool_choice"}))
def test_a_wrong_type_is_told_as_such(name: str) -> None:
    with pytest.raises(BadField, match=f"{name}: wants an? "):
        chat_read(**{name: WRONG_TYPE})


def test_every_row_of_the_table_is_tried() -> None:
    assert {name for row in REFUSALS for name in row.names} <= set(ASKING) & set(NEUTRAL)


def test_tools_beside_the_choice_none_ask_for_nothing() -> None:
    assert chat_read(tools=[TOOL], tool_choice="none") == chat_read()


@pytest.mark.parametrize("name", IGNORED)
def test_ignored_and_unknown_fields_are_accepted(name: str) -> None:
    assert chat_read(**{name: {"any": ["thing"]}}) == chat_read()
