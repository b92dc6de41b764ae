"""Items this server never makes, in a history that was begun with another model.

What the client's own tools did is read as calls and their results, by names the tools go by; what
OpenAI's servers did is left out, as the tools for it are (decisions, 7).
"""

import json
from collections.abc import Mapping
from typing import Any

from mlxcel.core.request import Message, ToolCall
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.extras import check_size
from mlxcel.protocols.openai.tools import DEPTH

Item = Mapping[str, Any]
CALLS = {
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
"""Calls of tools that the client runs, and where each says what it is called with."""
RESULTS = tuple(f"{kind}_output" for kind in CALLS)
HOSTED = frozenset(
    (
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("computer_call", "computer_call_output", "tool_search_call", "tool_search_output"),
        *("mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
        *("program", "program_output"),
    )
)
CHARS = 16_777_216
"""Of one item: a patch may hold whole files."""


def is_foreign(kind: str) -> bool:
    return kind in CALLS or kind in RESULTS or kind in HOSTED


def read_foreign(sent: Reader, kind: str) -> dict[str, Any]:
    """As it was sent, with what a turn is made of checked. Raises BadField."""
    check_size(sent, "type", sent.body, depth=DEPTH, chars=CHARS)
    if kind == "custom_tool_call":
        sent.required_string("name")
        sent.required_string("input")
    if kind in CALLS or kind in RESULTS:
        return {**sent.body, "call_id": _call_id(sent, kind)}
    return dict(sent.body)


def call(item: Item) -> ToolCall:
    """A tool of free text is called with it as `input`; other calls are objects as they are."""
    kind = item["type"]
    said = item.get(CALLS[kind])
    given = said if isinstance(said, dict) else {CALLS[kind]: said}
    name = item["name"] if kind == "custom_tool_call" else kind.removesuffix("_call")
    return ToolCall(id=item["call_id"], name=name, arguments=json.dumps(given, ensure_ascii=False))


def result(item: Item) -> Message:
    """One that says nothing says how it went."""
    output = item.get("output")
    if output is None:
        output = item.get("status")
    return Message(role="tool", text=_text(output), call_id=item["call_id"])


def _call_id(sent: Reader, kind: str) -> str:
    """The output of a local shell has the id of its call as its own."""
    is_own = kind == "local_shell_call_output" and sent.string("call_id") is None
    return sent.required_string("id" if is_own else "call_id")


def _text(output: Any) -> str:
    if isinstance(output, str):
        return output
    entries = output if isinstance(output, list) else [] if output is None else [output]
    return "\n".join(_line(entry) for entry in entries)


def _line(entry: Any) -> str:
    text = entry.get("text") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else json.dumps(entry, ensure_ascii=False)
