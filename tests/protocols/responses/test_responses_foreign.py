"""A history that was begun with another model: what is read, what is left out."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.request import Message, ToolCall
from tests.protocols.responses.reading import items_read, read_body
from tests.protocols.samples import RULES

ASKED = {"role": "user", "content": "q"}
USER = Message(role="user", text="q")
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}


def read_messages(*items: Any) -> tuple[Message, ...]:
    return items_read([*items]).request.chat.messages


def called(name: str, arguments: Any, *, id: str = "c") -> Message:
    call = ToolCall(id=id, name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", text="", calls=(call,))


SHELL = {"type": "exec", "command": ["ls"], "env": {}}
PATCH = {"type": "delete_file", "path": "a"}
CHUNK = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}


@pytest.mark.parametrize(
    ("call", "output", "wanted"),
    [
        pytest.param(
            {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** B"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
            [called("apply_patch", {"input": "*** B"}), ("done", "c")],
            id="custom",
        ),
        pytest.param(
            {"type": "local_shell_call", "id": "lsh", "call_id": "c", "action": SHELL},
            {"type": "local_shell_call_output", "id": "c", "output": '{"output":"a"}'},
            [called("local_shell", SHELL), ('{"output":"a"}', "c")],
            id="local-shell",
        ),
        pytest.param(
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c", "output": [CHUNK]},
            [called("shell", {"commands": ["ls"]}), (json.dumps(CHUNK), "c")],
            id="shell",
        ),
        pytest.param(
            {"type": "apply_patch_call", "call_id": "c", "operation": PATCH, "status": "completed"},
            {"type": "apply_patch_call_output", "call_id": "c", "status": "failed"},
            [called("apply_patch", PATCH), ("failed", "c")],
            id="patch-without-a-word",
        ),
        pytest.param(
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""},
            {
                "type": "custom_tool_call_output",
                "call_id": "c",
                "output": [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_text", "text": "b"},
                ],
            },
            [called("f", {"input": ""}), ("a\nb", "c")],
            id="parts",
        ),
    ],
)
def test_what_the_clients_tools_did_is_a_call(
    call: dict[str, Any], output: dict[str, Any], wanted: list[Any]
) -> None:
    text, id = wanted[1]
    told = (USER, wanted[0], Message(role="tool", text=text, call_id=id))
    assert read_messages(ASKED, call, output) == told


def test_a_foreign_call_is_of_the_turn_it_stands_in() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
    call = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}
    other = {"type": "function_call", "call_id": "d", "name": "g", "arguments": "{}"}
    said = {"role": "assistant", "content": "One moment."}
    (_, turn) = read_messages(ASKED, thought, said, call, other)
    assert (turn.reasoning, turn.text) == ("hm", "One moment.")
    assert [call.name for call in turn.calls] == ["f", "g"]


def test_what_openai_ran_is_left_out_and_named() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
    read = items_read(
        [
            ASKED,
            thought,
            SEARCH,
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": "r"},
        ],
        tools=[{"type": "web_search"}],
    )
    told = [(m.role, m.text, m.reasoning) for m in read.request.chat.messages]
    assert told == [("user", "q", ""), ("assistant", "a", "hm"), ("user", "r", "")]
    assert read.ignored_tools == ("web_search", "web_search_call")
    assert read.input_items[2] == SEARCH, "it is kept as it was sent"


def test_items_that_are_left_out_are_refused_where_tools_are() -> None:
    with pytest.raises(BadField) as refused:
        read_body(
            {"model": "tiny", "input": [ASKED, SEARCH]},
            rules=replace(RULES, strict_tools=True),
        )
    assert refused.value.param == "input[1].type"


@pytest.mark.parametrize(
    ("param", "item"),
    [
        pytest.param("input[0].call_id", {"type": "shell_call"}, id="no-call-id"),
        pytest.param("input[0].name", {"type": "custom_tool_call", "call_id": "c"}, id="no-name"),
        pytest.param(
            "input[0].input",
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": {}},
            id="input-as-object",
        ),
        pytest.param("input[0].id", {"type": "local_shell_call_output"}, id="no-id"),
        pytest.param("input[0].id", SEARCH | {"id": 7}, id="id-as-number"),
    ],
)
def test_what_cannot_be_used_is_named(param: str, item: dict[str, Any]) -> None:
    with pytest.raises(BadField) as refused:
        items_read([item, ASKED])
    assert refused.value.param == param


def test_a_call_without_its_id_is_refused() -> None:
    """Only the output of a local shell has the id of its call as its own."""
    with pytest.raises(BadField) as refused:
        items_read([ASKED, {"type": "local_shell_call", "id": "lsh", "action": SHELL}])
    assert refused.value.param == "input[1].call_id"
