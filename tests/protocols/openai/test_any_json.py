"""Whatever JSON a body is, reading it ends in a request or in an error that has a name."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.core.errors import MlxcelError
from mlxcel.protocols.openai import chat, completions
from mlxcel.protocols.openai.types import CHAT, COMPLETION, Types
from tests.protocols.samples import RULES, SETTINGS

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, 2, -1, 0.5, 2**31, 1e308, -1e308, 5e-324]),
)
WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["text", "function", "user", "assistant", "image_url", "json_schema", "auto"]),
)
KEYS = st.one_of(
    WORDS,
    st.sampled_from(["type", "role", "content", "text", "name", "id", "function", "arguments"]),
    st.sampled_from(["parameters", "tool_calls", "reasoning", "image_url", "url", "detail"]),
    st.sampled_from(["schema", "json_schema", "include_usage", "echo", "user", "5"]),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


def bodies(types: Types, *more: str) -> st.SearchStrategy[dict[str, Any]]:
    names = [name for _, names in types for name in names]
    return st.dictionaries(st.sampled_from([*names, *more, "model"]), JSON, max_size=8)


def read_or_refused(codec: Any, body: dict[str, Any]) -> None:
    """Any other exception than ours fails the test."""
    refusal: MlxcelError | None = None
    try:
        read = codec.read(body, request_id="r", settings=SETTINGS, received_s=0.0, rules=RULES)
    except MlxcelError as error:
        refusal = error
    if refusal is None:
        assert read.requests
        return
    assert refusal.status in (400, 501)
    assert refusal.message
    assert refusal.param


@settings(max_examples=40)
@given(bodies(CHAT, "tool_choice", "echo", "preserve_thinking"))
def test_any_chat_body(body: dict[str, Any]) -> None:
    read_or_refused(chat, body)


@settings(max_examples=40)
@given(bodies(CHAT, "tool_choice", "echo", "preserve_thinking"))
def test_any_chat_body_with_a_message(body: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "hi"}]
    read_or_refused(chat, body | {"model": "tiny", "messages": messages})


@settings(max_examples=40)
@given(JSON, JSON)
def test_any_message(message: Any, content: Any) -> None:
    told = {"role": "user", "content": content}
    read_or_refused(chat, {"model": "tiny", "messages": [message, told]})


@settings(max_examples=40)
@given(bodies(COMPLETION, "prompt"))
def test_any_completion_body(body: dict[str, Any]) -> None:
    read_or_refused(completions, body)


@settings(max_examples=40)
@given(bodies(COMPLETION))
def test_any_completion_body_with_a_prompt(body: dict[str, Any]) -> None:
    read_or_refused(completions, body | {"model": "tiny", "prompt": "hi"})


@settings(max_examples=40)
@given(JSON)
def test_any_prompt(prompt: Any) -> None:
    read_or_refused(completions, {"model": "tiny", "prompt": prompt})


@pytest.mark.parametrize("depth", [100, 5000])
@pytest.mark.parametrize("name", ["prompt", "stop", "logit_bias", "response_format", "something"])
def test_deep_values(name: str, depth: int) -> None:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    read_or_refused(completions, {"model": "tiny", "prompt": "hi"} | {name: value})
    schema = {"type": "json_schema", "json_schema": {"schema": {"x": value}}}
    body = {"model": "tiny", "prompt": "hi", "response_format": schema}
    read_or_refused(completions, body)
