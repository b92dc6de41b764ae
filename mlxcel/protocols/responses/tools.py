"""The tools of a Responses request and the choice among them.

Functions stand flat here. Tools of other kinds are run by OpenAI's servers or by the client in a
form of its own: they are left out of the prompt (decisions, 7).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat
from mlxcel.core.request import Tool, ToolChoice, ToolMode
from mlxcel.protocols.fields import Reader, json_type, shown
from mlxcel.protocols.openai.extras import check_size
from mlxcel.protocols.openai.tools import CHARS, DEPTH, NO_PARAMETERS, check_tool_count

FORMS = '"none", "auto", "required" or {"type": "function", "name": ...}'
ALLOWED = "allowed_tools"
ECHOED = ("type", "name", "description", "parameters", "strict")
"""Of a function: null where nothing was sent."""
SHOWN = ("name", "description", "parameters")
"""In this order, as a chat request has them: it makes the same prompt."""
WORDS = (ToolMode.AUTO, ToolMode.NONE, ToolMode.REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    offered: tuple[Tool, ...] = ()
    ignored: tuple[str, ...] = ()
    """The kinds that were left out."""
    echo: tuple[Mapping[str, Any], ...] = ()
    """All that were sent, as the response repeats them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    choice: ToolChoice
    offered: tuple[Tool, ...]
    """Those the choice leaves."""
    echo: str | Mapping[str, Any]


def object_at(value: object, path: str) -> Reader:
    if isinstance(value, dict):
        return Reader(value, path)
    raise BadField(path, f"wants an object, got {json_type(value)} {shown(value)}")


def read_tools(fields: Reader, *, is_strict: bool) -> Tools:
    """`is_strict`: tools of other kinds are refused."""
    entries = fields.items("tools") or ()
    check_size(fields, "tools", entries, depth=DEPTH, chars=CHARS)
    offered, ignored, echo = [], [], []
    for n, entry in enumerate(entries):
        tool = object_at(entry, f"tools[{n}]")
        kind = tool.required_string("type")
        if kind == "function":
            offered.append(_function(tool))
            echo.append(dict.fromkeys(ECHOED) | entry)
            continue
        if is_strict:
            rule = f'wants "function", the one kind this server runs; got {shown(kind)}'
            raise tool.refuse("type", rule)
        ignored.append(kind)
        echo.append(entry)
    check_tool_count(fields, offered)
    return Tools(offered=tuple(offered), ignored=tuple(dict.fromkeys(ignored)), echo=tuple(echo))


def read_choice(fields: Reader, tools: Sequence[Tool], output: OutputFormat | None) -> Choice:
    """Raises BadField for one that cannot be kept."""
    read = _choice(fields, tools)
    if read.choice.is_forced and not read.offered:
        rule = "forces a call, but there is no function to call; send one in tools"
        raise fields.refuse("tool_choice", rule)
    if read.choice.is_forced and output is not None:
        rule = (
            f"{shown(output.kind)} cannot be combined with a tool_choice that forces a call; "
            'leave one of them out, or send {"type": "text"}'
        )
        raise fields.refuse("text.format", rule)
    return read


def _function(tool: Reader) -> Tool:
    """`sent` has the form that chat templates are written for. What is not strict does not say
    so: clients of this route always send the word, those of chat only where it is true."""
    name = _name(tool)
    tool.string("description")
    unsaid = ("type",) if tool.boolean("strict") else ("type", "strict")
    parameters = tool.mapping("parameters")
    ordered = {**dict.fromkeys(SHOWN), **tool.body}
    function = {
        key: value for key, value in ordered.items() if key not in unsaid and value is not None
    }
    return Tool(
        name=name,
        parameters=NO_PARAMETERS if parameters is None else parameters,
        sent={"type": "function", "function": function},
    )


def _choice(fields: Reader, tools: Sequence[Tool]) -> Choice:
    offered = tuple(tools)
    _, value = fields.pick("tool_choice")
    if value is None:
        return Choice(choice=ToolChoice(), offered=offered, echo="auto")
    if isinstance(value, str) and value in WORDS:
        return Choice(choice=ToolChoice(mode=ToolMode(value)), offered=offered, echo=value)
    if not isinstance(value, dict):
        raise fields.refuse("tool_choice", f"wants {FORMS}; got {json_type(value)} {shown(value)}")
    named = Reader(value, "tool_choice")
    kind = named.required_string("type")
    if kind == ALLOWED:
        return _allowed(named, offered)
    name = _known(named, kind, offered)
    return Choice(
        choice=ToolChoice(mode=ToolMode.NAMED, name=name),
        offered=offered,
        echo={"type": "function", "name": name},
    )


def _allowed(fields: Reader, tools: tuple[Tool, ...]) -> Choice:
    """A choice among some of the tools: the others are as if they had not been sent."""
    mode = fields.string("mode") or ToolMode.AUTO
    if mode not in WORDS:
        raise fields.refuse("mode", f'wants "none", "auto" or "required"; got {shown(mode)}')
    names = []
    for n, entry in enumerate(fields.items("tools") or ()):
        tool = object_at(entry, f"{fields.name('tools')}[{n}]")
        names.append(_known(tool, tool.required_string("type"), tools))
    return Choice(
        choice=ToolChoice(mode=ToolMode(mode)),
        offered=tuple(tool for tool in tools if tool.name in names),
        echo={
            "type": ALLOWED,
            "mode": mode,
            "tools": [{"type": "function", "name": name} for name in names],
        },
    )


def _known(fields: Reader, kind: str, tools: Sequence[Tool]) -> str:
    """The name of a function that was sent. Flat, and as chat completions nest it."""
    if kind != "function":
        rule = f'wants "function", the one kind this server runs; got {shown(kind)}'
        raise fields.refuse("type", rule)
    function = fields.nested("function")
    name = _name(fields if function is None else function)
    if name not in {tool.name for tool in tools}:
        known = shown([tool.name for tool in tools])
        rule = f"wants the name of one of the functions in tools, {known}; got {shown(name)}"
        raise fields.refuse("name", rule)
    return name


def _name(fields: Reader) -> str:
    name = fields.required_string("name")
    if not name.strip():
        raise fields.refuse("name", f"wants the name of a function, got {shown(name)}")
    return name
