"""Whatever JSON a body is, reading it ends in a request or in an error that has a name."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.protocols.anthropic import messages
from tests.protocols.openai.test_any_json import JSON, read_or_refused

FIELDS = (
    *("messages", "system", "tools", "tool_choice", "thinking", "max_tokens", "stop_sequences"),
    *("temperature", "top_p", "top_k", "stream", "metadata", "model"),
)
KINDS = ("text", "document", "image", "tool_use", "tool_result", "thinking")
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional=dict.fromkeys(
        ("text", "source", "id", "name", "input", "tool_use_id", "content", "thinking"), JSON
    ),
)
TURNS = st.fixed_dictionaries(
    {
        "role": st.sampled_from(("user", "assistant", "system")),
        "content": st.one_of(JSON, st.lists(BLOCKS, max_size=3)),
    }
)
HI = {"role": "user", "content": "hi"}


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8))
def test_any_body(body: dict[str, Any]) -> None:
    read_or_refused(messages, body)
    read_or_refused(messages, body | {"model": "tiny", "messages": [HI]})


@settings(max_examples=60)
@given(st.lists(TURNS, max_size=4))
def test_any_turns(turns: list[Any]) -> None:
    read_or_refused(messages, {"model": "tiny", "messages": turns})
    read_or_refused(messages, {"model": "tiny", "messages": [HI, *turns]})


@settings(max_examples=40)
@given(st.lists(JSON, max_size=3), JSON)
def test_any_tools(tools: list[Any], choice: Any) -> None:
    body = {"model": "tiny", "messages": [HI], "tools": tools, "tool_choice": choice}
    read_or_refused(messages, body)
