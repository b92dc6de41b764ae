"""Messages of blocks, and the system text beside them, as turns a template knows."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlxcel.core.errors import BadField, NotSupported
from mlxcel.core.request import Message, ToolCall
from mlxcel.protocols.anthropic.stamp import pin_stamp
from mlxcel.protocols.fields import Reader, json_type, shown
from mlxcel.protocols.openai.extras import check_size
from mlxcel.protocols.openai.tools import DEPTH

ROLES = ("user", "assistant", "system")
MESSAGES = 65_536
"""Each costs a prompt some tokens, and there is no window that large."""
CHARS = 16_777_216
"""Of the input of one call: some write whole files. How deep it may be is the tools' bound."""
INNER = ("text", "document", "search_result", "image")
"""Blocks that the result of a tool may hold."""
BETWEEN = "\n\n"
"""System text and what it was moved in front of."""


@dataclass(slots=True)
class Turn:
    """One message as it was sent, its blocks told apart."""

    role: str
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)
    image: str | None = None
    """Where the first one stands."""

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def read_conversation(
    fields: Reader, *, pins_stamp: bool
) -> tuple[tuple[Message, ...], str | None]:
    """The turns, the system text first, and where the first image stands. Raises BadField."""
    entries = fields.items("messages")
    if entries is None:
        raise fields.refuse("messages", "is required; it wants an array of messages")
    if len(entries) > MESSAGES:
        raise fields.refuse("messages", f"wants at most {MESSAGES} messages, got {len(entries)}")
    turns = [_turn(object_at(entry, f"messages[{n}]")) for n, entry in enumerate(entries)]
    image = next((turn.image for turn in turns if turn.image is not None), None)
    return _folded(read_system(fields, pins_stamp=pins_stamp), turns), image


def refuse_image(place: str | None) -> None:
    if place is not None:
        what = f"{place}: image input is not supported; the served model takes text only"
        raise NotSupported(what, param=place)


def require_input(fields: Reader, messages: Sequence[Message]) -> None:
    """The system text alone is none: there is nobody to answer."""
    said = (message for message in messages if message.role != "system")
    if not any(m.text.strip() or m.calls or m.reasoning or m.role == "tool" for m in said):
        raise fields.refuse("messages", "wants at least one message with text or a tool call")


def read_system(fields: Reader, *, pins_stamp: bool) -> str:
    """A string, or blocks of text; blank ones are none. A billing stamp is pinned where one of
    them begins with it, and nowhere else."""
    texts = _system_texts(fields)
    text = "\n".join(map(pin_stamp, texts) if pins_stamp else texts)
    return text if text.strip() else ""


def _system_texts(fields: Reader) -> list[str]:
    value = fields.body.get("system")
    if value is None or isinstance(value, str):
        return [value or ""]
    if not isinstance(value, list):
        rule = f"wants a string or an array of text blocks; got {json_type(value)}"
        raise fields.refuse("system", rule)
    blocks = [object_at(entry, f"system[{n}]") for n, entry in enumerate(value)]
    for block in blocks:
        if block.required_string("type") != "text":
            rule = f'wants "text", got {shown(block.body["type"])}'
            raise block.refuse("type", rule)
    return [block.required_string("text") for block in blocks]


def object_at(value: object, path: str) -> Reader:
    if isinstance(value, dict):
        return Reader(value, path)
    raise BadField(path, f"wants an object, got {json_type(value)} {shown(value)}")


def _turn(fields: Reader) -> Turn:
    role = fields.required_string("role")
    if role not in ROLES:
        raise fields.refuse("role", f"wants one of {', '.join(ROLES)}; got {shown(role)}")
    turn, content = Turn(role), fields.body.get("content")
    if content is None:
        raise fields.refuse("content", "is required; it wants a string or an array of blocks")
    if isinstance(content, str):
        turn.texts.append(content)
        return turn
    if not isinstance(content, list):
        rule = f"wants a string or an array of blocks; got {json_type(content)}"
        raise fields.refuse("content", rule)
    for n, entry in enumerate(content):
        _take(turn, object_at(entry, f"{fields.name('content')}[{n}]"))
    return turn


def _take(turn: Turn, block: Reader) -> None:
    """What is of no kind known here, or stands where its kind has no place, is left out."""
    match block.required_string("type"), turn.role:
        case "text", _:
            turn.texts.append(block.required_string("text"))
        case "document", _:
            _document(turn, block)
        case "search_result", _:
            _search_result(turn, block)
        case "image", "user":
            _image(turn, block)
        case "tool_use", "assistant":
            turn.calls.append(_call(block))
        case "tool_result", "user":
            _result(turn, block)
        case "thinking", "assistant":
            turn.thoughts.append(block.required_string("thinking"))


def _document(turn: Turn, block: Reader) -> None:
    source = block.nested("source")
    if source is not None and source.string("type") == "text":
        turn.texts.append(source.required_string("data"))


def _search_result(turn: Turn, block: Reader) -> None:
    """What was found, below what it is called and where it stands."""
    about = (block.string("title"), block.string("source"))
    turn.texts += [line for line in about if line]
    for n, entry in enumerate(block.items("content") or ()):
        part = object_at(entry, f"{block.name('content')}[{n}]")
        turn.texts.append(part.required_string("text"))


def _image(turn: Turn, block: Reader) -> None:
    source = block.nested("source")
    if source is None:
        return
    kind = source.string("type")
    payload = source.string({"base64": "data", "url": "url"}.get(kind or "", "data"))
    if kind in ("base64", "url") and payload and turn.image is None:
        turn.image = block.path


def _call(block: Reader) -> ToolCall:
    given = block.mapping("input")
    check_size(block, "input", given, depth=DEPTH, chars=CHARS)
    return ToolCall(
        id=block.string("id") or f"toolu_{secrets.token_hex(8)}",
        name=block.required_string("name"),
        arguments=json.dumps({} if given is None else given, ensure_ascii=False),
    )


def _result(turn: Turn, block: Reader) -> None:
    call_id = block.required_string("tool_use_id")
    content = block.body.get("content")
    if content is None or isinstance(content, str):
        turn.results.append(Message(role="tool", text=content or "", call_id=call_id))
        return
    if not isinstance(content, list):
        rule = f"wants a string or an array of blocks; got {json_type(content)}"
        raise block.refuse("content", rule)
    inner = Turn("user")
    for n, entry in enumerate(content):
        part = object_at(entry, f"{block.name('content')}[{n}]")
        if part.required_string("type") in INNER:
            _take(inner, part)
    turn.image = turn.image or inner.image
    turn.results.append(Message(role="tool", text=inner.text, call_id=call_id))


def _folded(system: str, turns: Sequence[Turn]) -> tuple[Message, ...]:
    """System turns among the others make no turn of their own, so that the others alternate as
    they did (http-anthropic, 4): into the head, in front of the user turn that follows, or behind
    the last one, if that is a user's."""
    head = [system] if system else []
    waiting: list[str] = []
    messages: list[Message] = []
    for turn in turns:
        if turn.role != "system":
            messages += _messages(turn, waiting)
            if turn.role == "user":
                waiting = []
        elif turn.text.strip():
            (waiting if messages else head).append(turn.text)
    if waiting:
        last = messages[-1]
        if last.role in ("user", "tool"):
            text = BETWEEN.join(part for part in (last.text, *waiting) if part)
            messages[-1] = replace(last, text=text)
        else:
            head += waiting
    if not head:
        return tuple(messages)
    return (Message(role="system", text=BETWEEN.join(head)), *messages)


def _messages(turn: Turn, before: Sequence[str]) -> list[Message]:
    """Of a user: the text, and each result of a tool a turn of its own behind it."""
    if turn.role == "assistant":
        said = Message(
            role="assistant",
            text=turn.text,
            reasoning="\n".join(filter(None, turn.thoughts)),
            calls=tuple(turn.calls),
        )
        return [said]
    text = BETWEEN.join(part for part in (*before, turn.text) if part)
    own: list[Any] = [] if turn.results and not text else [Message(role="user", text=text)]
    return [*own, *turn.results]
