"""The tools of a chat request and the choice among them."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat
from mlxcel.core.request import Tool, ToolChoice, ToolMode
from mlxcel.protocols.fields import Reader, json_type, shown
from mlxcel.protocols.openai.extras import check_size

TOOLS = 128
DEPTH = 64
CHARS = 1_048_576
"""Of all tools together: templates are programs we did not write, and walk them."""
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
FORMS = '"none", "auto", "required" or {"type": "function", "function": {"name": ...}}'


def read_tools(fields: Reader) -> tuple[Tool, ...]:
    entries = fields.items("tools") or ()
    check_size(fields, "tools", entries, depth=DEPTH, chars=CHARS)
    return tuple(_tool(entry, fields.name(f"tools[{i}]")) for i, entry in enumerate(entries))


def check_tool_count(fields: Reader, tools: Sequence[Tool]) -> None:
    if len(tools) > TOOLS:
        raise fields.refuse("tools", f"wants at most {TOOLS} tools, got {len(tools)}")


def read_tool_choice(
    fields: Reader, tools: Sequence[Tool], output: OutputFormat | None
) -> ToolChoice:
    """Names are compared as they are: no trimming, no folding of case."""
    choice = _choice(fields)
    if choice.is_forced and not tools:
        raise fields.refuse("tool_choice", "forces a call, but there are no tools; send tools")
    if choice.mode is ToolMode.NAMED and choice.name not in {tool.name for tool in tools}:
        known = shown([tool.name for tool in tools])
        rule = f"wants the name of one of the tools, {known}; got {shown(choice.name)}"
        raise fields.refuse("tool_choice.function.name", rule)
    if choice.is_forced and output is not None:
        rule = (
            f"{shown(output.kind)} cannot be combined with a tool_choice that forces a call; "
            'leave one of them out, or send {"type": "text"}'
        )
        raise fields.refuse("response_format", rule)
    return choice


def _tool(entry: object, path: str) -> Tool:
    if not isinstance(entry, dict):
        raise BadField(path, f"wants an object, got {json_type(entry)} {shown(entry)}")
    fields = Reader(entry, path)
    _check_function(fields)
    function = _function(fields)
    function.string("description")
    parameters = function.mapping("parameters")
    return Tool(
        name=_name(function),
        parameters=NO_PARAMETERS if parameters is None else parameters,
        sent=entry,
    )


def _choice(fields: Reader) -> ToolChoice:
    _, value = fields.pick("tool_choice")
    if value is None:
        return ToolChoice()
    if isinstance(value, dict):
        named = Reader(value, "tool_choice")
        _check_function(named)
        return ToolChoice(mode=ToolMode.NAMED, name=_name(_function(named)))
    if value in (ToolMode.AUTO, ToolMode.NONE, ToolMode.REQUIRED):
        return ToolChoice(mode=ToolMode(value))
    raise fields.refuse("tool_choice", f"wants {FORMS}; got {json_type(value)} {shown(value)}")


def _check_function(fields: Reader) -> None:
    kind = fields.required_string("type")
    if kind != "function":
        raise fields.refuse("type", f'wants "function", got {shown(kind)}')


def _function(fields: Reader) -> Reader:
    function = fields.nested("function")
    if function is None:
        raise fields.refuse("function", "is required; it wants an object")
    return function


def _name(function: Reader) -> str:
    name = function.required_string("name")
    if not name.strip():
        raise function.refuse("name", f"wants the name of a function, got {shown(name)}")
    return name
