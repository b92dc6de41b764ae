"""Input items in the form in which they are kept: every key there, every item with an id.

What is kept reads like what was sent: a chain is the items of its responses one after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlxcel.core.errors import NotSupported
from mlxcel.protocols.fields import Reader, json_type, shown
from mlxcel.protocols.responses.foreign import HOSTED, is_foreign, read_foreign
from mlxcel.protocols.responses.parts import Media, read_content, read_output
from mlxcel.protocols.responses.sealed import opened
from mlxcel.protocols.responses.tools import object_at

Item = Mapping[str, Any]
NewHex = Callable[[int], str]
"""So many random bytes, as hex digits."""
Find = Callable[[str], Item | None]
"""The item of an id, out of what is kept of earlier responses."""

ITEMS = 65_536
"""Each costs a prompt some tokens, and there is no window that large."""
ID_BYTES = 8
ROLES = ("user", "assistant", "system", "developer")
KINDS = "message, function_call, function_call_output, reasoning, compaction or item_reference"
THOUGHTS = ("reasoning_text", "text")


def unknown(_: str) -> None:
    """The `Find` of whoever keeps nothing."""
    return None


@dataclass(slots=True, kw_only=True)
class Reading:
    """One reading of the items of a request."""

    new_hex: NewHex
    find: Find
    is_strict: bool = False
    """Items that would be left out are refused, as the tools for them are."""
    media: Media = field(default_factory=Media)
    ignored: list[str] = field(default_factory=list)
    """The kinds of those that were left out."""
    ids: set[str] = field(default_factory=set)
    """Taken already: pages of a list go on behind an id."""

    def id(self, sent: Reader, prefix: str) -> str:
        """The client's own, where it sends an item back."""
        own = sent.string("id")
        return own if own else f"{prefix}_{self.new_hex(ID_BYTES)}"


def read_items(fields: Reader, reading: Reading) -> tuple[Item, ...]:
    """The field `input`. Raises BadField."""
    value = fields.body.get("input")
    if isinstance(value, str):
        value = [{"type": "message", "role": "user", "content": value}]
    if value is None:
        raise fields.refuse("input", "is required; it wants a string or an array of items")
    if not isinstance(value, list):
        rule = f"wants a string or an array of items; got {json_type(value)}"
        raise fields.refuse("input", rule)
    if len(value) > ITEMS:
        raise fields.refuse("input", f"wants at most {ITEMS} items, got {len(value)}")
    entries = (object_at(entry, f"input[{n}]") for n, entry in enumerate(value))
    return tuple(_apart(_item(entry, reading), reading) for entry in entries)


def refuse_media(media: Media) -> None:
    """After `read_items`. Raises NotSupported for the first part that is no text."""
    if media.found:
        kind, place = media.found[0]
        what = f"{kind} input is not supported: the served model takes text only"
        raise NotSupported(what, param=place)


def finder(history: Sequence[Item], find: Find) -> Find:
    """Looks into the history first."""
    known = {item["id"]: item for item in history}
    return lambda name: known[name] if name in known else find(name)


def _apart(item: Item, reading: Reading) -> Item:
    """With an id that no item before it has: some clients send one twice."""
    if item["id"] in reading.ids:
        item = {**item, "id": reading.id(Reader({}), "item")}
    reading.ids.add(item["id"])
    return item


def _item(sent: Reader, reading: Reading) -> Item:
    match _kind(sent):
        case "message":
            return _message(sent, reading)
        case "function_call":
            return _call(sent, reading)
        case "function_call_output":
            return _output(sent, reading)
        case "reasoning":
            return _reasoning(sent, reading)
        case "compaction":
            return _compaction(sent, reading)
        case "item_reference":
            return _referenced(sent, reading)
        case kind if is_foreign(kind):
            return _foreign(sent, kind, reading)
        case kind:
            raise sent.refuse("type", f"wants {KINDS}; got {shown(kind)}")


def is_bare_id(sent: Mapping[str, Any]) -> bool:
    return [key for key, value in sent.items() if value is not None] == ["id"]


def _kind(sent: Reader) -> str:
    """A bare role makes a message, a bare id a reference."""
    kind = sent.string("type")
    if kind is not None:
        return kind
    if sent.body.get("role") is not None:
        return "message"
    if is_bare_id(sent.body):
        return "item_reference"
    raise sent.refuse("type", f"is required; it wants {KINDS}")


def _message(sent: Reader, reading: Reading) -> Item:
    role = sent.required_string("role")
    if role not in ROLES:
        raise sent.refuse("role", f"wants one of {', '.join(ROLES)}; got {shown(role)}")
    kind = "output_text" if role == "assistant" else "input_text"
    more = {"name": sent.string("name"), "phase": sent.string("phase")}
    return {
        "id": reading.id(sent, "msg"),
        "type": "message",
        "role": role,
        "status": "completed",
        "content": read_content(sent, "content", kind, reading.media),
    } | {key: value for key, value in more.items() if value is not None}


def _call(sent: Reader, reading: Reading) -> Item:
    return {
        "id": reading.id(sent, "fc"),
        "type": "function_call",
        "call_id": sent.required_string("call_id"),
        "name": sent.required_string("name"),
        "arguments": sent.required_string("arguments"),
        "status": "completed",
    }


def _output(sent: Reader, reading: Reading) -> Item:
    return {
        "id": reading.id(sent, "fco"),
        "type": "function_call_output",
        "call_id": sent.required_string("call_id"),
        "output": read_output(sent, reading.media),
        "status": "completed",
    }


def _reasoning(sent: Reader, reading: Reading) -> Item:
    """Thoughts stand in `content`, or were sealed here. A summary is no thought."""
    content = [_thought(sent, n, entry) for n, entry in enumerate(sent.items("content") or ())]
    sent.items("summary")
    kept = sent.string("encrypted_content")
    text = None if content or kept is None else opened(kept)
    if text is not None:
        content = [{"type": "reasoning_text", "text": text}]
    return {
        "id": reading.id(sent, "rs"),
        "type": "reasoning",
        "summary": [],
        "content": content,
        "status": "completed",
    }


def _thought(sent: Reader, n: int, entry: object) -> dict[str, Any]:
    part = object_at(entry, f"{sent.name('content')}[{n}]")
    kind = part.string("type")
    if kind is not None and kind not in THOUGHTS:
        raise part.refuse("type", f'wants "reasoning_text", got {shown(kind)}')
    return {"type": "reasoning_text", "text": part.required_string("text")}


def _compaction(sent: Reader, reading: Reading) -> Item:
    content = sent.required_string("encrypted_content")
    if opened(content) is None:
        rule = "was not made by this server, which cannot read it; send the turns themselves"
        raise sent.refuse("encrypted_content", rule)
    return {
        "id": reading.id(sent, "cmp"),
        "type": "compaction",
        "encrypted_content": content,
    }


def _foreign(sent: Reader, kind: str, reading: Reading) -> Item:
    if kind in HOSTED:
        if reading.is_strict:
            raise sent.refuse("type", f"wants {KINDS}; got {shown(kind)}")
        reading.ignored.append(kind)
    return {**read_foreign(sent, kind), "type": kind, "id": reading.id(sent, "item")}


def _referenced(sent: Reader, reading: Reading) -> Item:
    name = sent.required_string("id")
    found = reading.find(name)
    if found is None:
        rule = f"no item {shown(name)} is kept here; send the item itself"
        raise sent.refuse("id", rule)
    return found
