"""The parts of a message and of the output of a tool, in the form in which they are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlxcel.core.errors import BadField
from mlxcel.protocols.fields import Reader, json_type, shown
from mlxcel.protocols.openai.extras import check_size
from mlxcel.protocols.openai.media import DETAILS, MEDIA_PARTS, check_media
from mlxcel.protocols.openai.tools import CHARS, DEPTH
from mlxcel.protocols.responses.tools import object_at

Part = Mapping[str, Any]
TEXTS = ("input_text", "text", "output_text")
KNOWN = ", ".join((*TEXTS, "refusal", "input_image", *MEDIA_PARTS))


@dataclass(slots=True)
class Media:
    """The parts that are no text, in the order in which they were met: kind and place."""

    found: list[tuple[str, str]] = field(default_factory=list)


def read_content(fields: Reader, key: str, kind: str, media: Media) -> list[Part]:
    """A string is one part. `kind` is that of its text: `input_text` or `output_text`."""
    content = fields.body.get(key)
    if content is None:
        raise fields.refuse(key, "is required; it wants a string or an array of parts")
    if isinstance(content, str):
        return [text_part(kind, content)]
    if not isinstance(content, list):
        rule = f"wants a string or an array of parts; got {json_type(content)}"
        raise fields.refuse(key, rule)
    entries = (object_at(e, f"{fields.name(key)}[{n}]") for n, e in enumerate(content))
    return [_part(entry, kind, media) for entry in entries]


def read_output(fields: Reader, media: Media) -> str | list[Part]:
    """Of a tool. A part of a kind unknown here stays as it is: it will be shown as JSON."""
    output = fields.body.get("output")
    if output is None or isinstance(output, str):
        return fields.required_string("output")
    if not isinstance(output, list):
        rule = f"wants a string or an array of parts; got {json_type(output)}"
        raise fields.refuse("output", rule)
    entries = [object_at(e, f"{fields.name('output')}[{n}]") for n, e in enumerate(output)]
    return [_output_part(entry, media) for entry in entries]


def text_part(kind: str, text: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": kind, "text": text}
    return part | {"annotations": [], "logprobs": []} if kind == "output_text" else part


def joined(content: Sequence[Part]) -> str:
    """The text of a message; as in a chat request, without a separator."""
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def _part(part: Reader, kind: str, media: Media) -> Part:
    sent = part.required_string("type")
    if sent in TEXTS:
        return text_part(kind, part.required_string("text"))
    if sent == "refusal":
        return {"type": sent, "refusal": part.required_string("refusal")}
    _media(part, sent, media)
    return part.body


def _output_part(part: Reader, media: Media) -> Part:
    sent = part.string("type")
    if sent in TEXTS:
        return text_part("input_text", part.required_string("text"))
    if sent in ("input_image", "input_file") or sent in MEDIA_PARTS:
        _media(part, sent, media)
    else:
        check_size(part, "type", part.body, depth=DEPTH, chars=CHARS)
    return part.body


def _media(part: Reader, kind: str, media: Media) -> None:
    """Raises BadField for what is malformed; what is well made is only noted."""
    if kind == "input_file":
        raise part.refuse("type", "documents are not read here; send their text as input_text")
    if kind in MEDIA_PARTS:
        check_media(part)
        media.found.append((MEDIA_PARTS[kind], part.path))
        return
    if kind != "input_image":
        raise part.refuse("type", f"wants one of {KNOWN}; got {shown(kind)}")
    detail = part.string("detail")
    if detail is not None and detail.lower() not in DETAILS:
        raise part.refuse("detail", f"wants one of {', '.join(DETAILS)}; got {shown(detail)}")
    if part.string("image_url") is None:
        raise _without_url(part)
    media.found.append(("image", part.path))


def _without_url(part: Reader) -> BadField:
    if part.string("file_id") is None:
        return part.refuse("image_url", "is required; it wants a string")
    return part.refuse("file_id", "there is no store of uploads here; send image_url")
