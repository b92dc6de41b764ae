"""Whatever JSON a body is, reading it ends in a request or in an error that has a name."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.protocols.responses import create
from mlxcel.protocols.responses.types import RESPONSES
from tests.protocols.openai.test_any_json import JSON, bodies, read_or_refused

MORE = ("input", "conversation", "tool_choice")
TYPES = st.sampled_from(
    [
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
        "compaction",
        "item_reference",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "web_search_call",
        "input_text",
        "output_text",
        "refusal",
        "input_image",
        "input_file",
        "function",
        "allowed_tools",
        "web_search",
    ]
)
NAMES = (
    "role content output call_id name arguments id summary text encrypted_content image_url "
    "file_id detail refusal parameters tools input action operation status phase"
)
KEYS = st.sampled_from(NAMES.split())
VALUES = st.one_of(JSON, st.sampled_from(["user", "assistant", "developer", "b64:aGk=", "weather"]))


def typed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    keys = st.dictionaries(KEYS, st.one_of(VALUES, st.lists(inner, max_size=3)), max_size=6)
    return st.builds(lambda kind, rest: {"type": kind} | rest, TYPES, keys)


ITEMS = typed(typed(JSON))


@settings(max_examples=60)
@given(bodies(RESPONSES, *MORE))
def test_any_body(body: dict[str, Any]) -> None:
    read_or_refused(create, body)


@settings(max_examples=60)
@given(bodies(RESPONSES, "conversation", "tool_choice"))
def test_any_body_with_input(body: dict[str, Any]) -> None:
    read_or_refused(create, body | {"model": "tiny", "input": "hi"})


@settings(max_examples=100)
@given(st.lists(st.one_of(ITEMS, JSON), max_size=4))
def test_any_items(items: list[Any]) -> None:
    read_or_refused(create, {"model": "tiny", "input": [*items, {"role": "user", "content": "q"}]})


@settings(max_examples=60)
@given(st.lists(ITEMS, max_size=4), st.one_of(ITEMS, JSON))
def test_any_tools(tools: list[Any], choice: Any) -> None:
    read_or_refused(create, {"model": "tiny", "input": "hi", "tools": tools, "tool_choice": choice})


@pytest.mark.parametrize("depth", [100, 5000])
@pytest.mark.parametrize("name", ["input", "tools", "text", "metadata", "output", "something"])
def test_deep_values(name: str, depth: int) -> None:
    value: Any = {"type": "x"}
    for _ in range(depth):
        value = [value]
    body: dict[str, Any] = {"model": "tiny", "input": "hi"}
    if name == "text":
        value = {"format": {"type": "json_schema", "schema": {"x": value}}}
    if name == "output":
        part = {"type": "x", "y": value}
        name, value = "input", [{"type": "function_call_output", "call_id": "c", "output": [part]}]
    read_or_refused(create, body | {name: value})
