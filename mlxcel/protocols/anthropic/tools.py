"""The tools of a Messages request and the choice among them."""

from collections.abc import Sequence

from mlxcel.core.errors import BadField
from mlxcel.core.request import Tool, ToolChoice, ToolMode
from mlxcel.protocols.anthropic.blocks import object_at
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.extras import check_size
from mlxcel.protocols.openai.tools import CHARS, DEPTH, check_tool_count

MODES = {"auto": ToolMode.AUTO, "none": ToolMode.NONE, "any": ToolMode.REQUIRED}


def read_tools(fields: Reader, *, is_strict: bool) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Those we can offer, and the names of those that are left out: tools the server of Anthropic
    runs, which come without a schema. Raises BadField for one of them if `is_strict`."""
    entries = fields.items("tools") or ()
    check_size(fields, "tools", entries, depth=DEPTH, chars=CHARS)
    offered: list[Tool] = []
    ignored: list[str] = []
    for n, entry in enumerate(entries):
        tool = object_at(entry, f"tools[{n}]")
        schema, name = tool.mapping("input_schema"), tool.string("name")
        description = tool.string("description")
        if schema is None or not name:
            kind = tool.string("type") or name or "unnamed"
            if is_strict:
                rule = f"wants a name and an input_schema; {shown(kind)} cannot be run here"
                raise BadField(tool.path, rule)
            ignored.append(kind)
            continue
        # In this order, as a chat request has them: it makes the same prompt.
        about = {} if description is None else {"description": description}
        function = {"name": name, **about, "parameters": schema}
        offered.append(
            Tool(name=name, parameters=schema, sent={"type": "function", "function": function})
        )
    return tuple(offered), tuple(ignored)


def check_tools(fields: Reader, tools: Sequence[Tool]) -> None:
    check_tool_count(fields, tools)


def read_tool_choice(fields: Reader, tools: Sequence[Tool]) -> ToolChoice:
    choice = _choice(fields)
    if choice.is_forced and not tools:
        raise fields.refuse("tool_choice", "forces a call, but there are no tools; send tools")
    if choice.mode is ToolMode.NAMED and choice.name not in {tool.name for tool in tools}:
        known = shown([tool.name for tool in tools])
        rule = f"wants the name of one of the tools, {known}; got {shown(choice.name)}"
        raise BadField("tool_choice.name", rule)
    return choice


def _choice(fields: Reader) -> ToolChoice:
    """What names nothing and what is of no kind known here counts as none; a bare word is taken as
    a mode."""
    _, value = fields.pick("tool_choice")
    if isinstance(value, str):
        if value not in (ToolMode.AUTO, ToolMode.NONE, ToolMode.REQUIRED):
            rule = f'wants {{"type": "auto"}}, "any", "tool" or "none"; got {shown(value)}'
            raise fields.refuse("tool_choice", rule)
        return ToolChoice(mode=ToolMode(value))
    choice = fields.nested("tool_choice")
    kind = None if choice is None else choice.string("type")
    name = None if choice is None else choice.string("name")
    if kind is None:
        return ToolChoice()
    if kind == "tool" and name:
        return ToolChoice(mode=ToolMode.NAMED, name=name)
    return ToolChoice(mode=MODES.get(kind, ToolMode.AUTO))
