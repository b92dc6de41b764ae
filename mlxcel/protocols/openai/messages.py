"""The messages of a chat request: every role, content as text, parts or nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

from mlxcel.core.errors import BadField, NotSupported
from mlxcel.core.request import Message, ToolCall
from mlxcel.protocols.fields import Reader, json_type, shown
from mlxcel.protocols.openai.media import MEDIA_PARTS, check_media

ROLES = ("system", "developer", "user", "assistant", "tool")
MESSAGES = 65_536
"""Each costs a prompt some tokens, and there is no window that large."""


def read_messages(fields: Reader) -> tuple[Message, ...]:
    """Raises BadField for what is malformed. A media part leaves no trace in the messages."""
    entries = fields.items("messages")
    if entries is None:
        raise fields.refuse("messages", "is required; it wants an array of messages")
    if len(entries) > MESSAGES:
        raise fields.refuse("messages", f"wants at most {MESSAGES} messages, got {len(entries)}")
    readers = (_object(entry, f"messages[{i}]") for i, entry in enumerate(entries))
    return tuple(_message(reader) for reader in readers)


def require_input(fields: Reader, messages: Sequence[Message]) -> None:
    """After `read_messages`. A media part is input enough."""
    if not any(map(_has_input, messages)) and _first_media(fields) is None:
        raise fields.refuse(
            "messages", "wants at least one message with text, tool calls or reasoning"
        )


def refuse_media(fields: Reader) -> None:
    """After `read_messages`. Raises NotSupported for the first part that is no text."""
    media = _first_media(fields)
    if media is not None:
        kind, place = media
        what = f"{kind} input is not supported: the served model takes text only"
        raise NotSupported(what, param=place)


def _message(fields: Reader) -> Message:
    role = fields.required_string("role")
    if role not in ROLES:
        raise fields.refuse("role", f"wants one of {', '.join(ROLES)}; got {shown(role)}")
    return Message(
        role=role,
        text=_text(fields),
        name=fields.string("name"),
        reasoning=_reasoning(fields),
        calls=_calls(fields),
        call_id=fields.string("tool_call_id"),
    )


def _reasoning(fields: Reader) -> str:
    """Both spellings may stand in one message: answers carry both, and clients send them back."""
    both = (fields.string("reasoning_content"), fields.string("reasoning"))
    return next((text for text in both if text), "")


def _has_input(message: Message) -> bool:
    return bool(message.text.strip() or message.calls or message.reasoning)


def _text(fields: Reader) -> str:
    """Content as one string; text parts are joined as they are, without a separator."""
    content = fields.body.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        rule = f"wants a string, an array of parts or null; got {json_type(content)}"
        raise fields.refuse("content", rule)
    return "".join(_part_text(part) for part in _parts(fields, content))


def _parts(fields: Reader, content: Sequence[Any]) -> list[Reader]:
    return [_object(part, f"{fields.name('content')}[{i}]") for i, part in enumerate(content)]


def _part_text(part: Reader) -> str:
    kind = part.required_string("type")
    if kind == "text":
        return part.required_string("text")
    if kind not in MEDIA_PARTS:
        known = ", ".join(("text", *MEDIA_PARTS))
        raise part.refuse("type", f"wants one of {known}; got {shown(kind)}")
    check_media(part)
    return ""


def _first_media(fields: Reader) -> tuple[str, str] | None:
    """Kind and place."""
    entries = enumerate(fields.items("messages") or ())
    readers = (Reader(entry, f"messages[{i}]") for i, entry in entries)
    return next((part for reader in readers for part in _media(reader)), None)


def _media(fields: Reader) -> Iterator[tuple[str, str]]:
    content = fields.body.get("content")
    if isinstance(content, list):
        for part in _parts(fields, content):
            if (kind := part.body["type"]) in MEDIA_PARTS:
                yield MEDIA_PARTS[kind], part.path


def _calls(fields: Reader) -> tuple[ToolCall, ...]:
    entries = fields.items("tool_calls") or ()
    place = fields.name("tool_calls")
    return tuple(_call(_object(entry, f"{place}[{i}]")) for i, entry in enumerate(entries))


def _call(fields: Reader) -> ToolCall:
    call_id, kind = fields.required_string("id"), fields.required_string("type")
    if kind != "function":
        raise fields.refuse("type", f'wants "function", got {shown(kind)}')
    function = fields.nested("function")
    if function is None:
        raise fields.refuse("function", "is required; it wants an object")
    return ToolCall(
        id=call_id,
        name=function.required_string("name"),
        arguments=function.required_string("arguments"),
    )


def _object(value: object, path: str) -> Reader:
    if isinstance(value, dict):
        return Reader(value, path)
    raise BadField(path, f"wants an object, got {json_type(value)} {shown(value)}")
