"""POST /infill: code with a gap, answered like a completion."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.errors import NotSupported
from mlxcel.core.request import InfillPrompt, Lane
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import ReadRules
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.llama.asked import Arrival, CompletionRead, read_asked
from mlxcel.protocols.llama.types import check_types
from mlxcel.protocols.openai.numbers import given
from mlxcel.protocols.openai.sampling import Draw, draw_seed

ID_PREFIX = "infill-"
UNNAMED = "tmp"
FILES = 1024


def read(
    body: Mapping[str, Any],
    *,
    request_id: str,
    settings: Settings,
    received_s: float,
    rules: ReadRules,
    lane: Lane = Lane.NORMAL,
    draw: Draw = draw_seed,
) -> CompletionRead:
    """Raises NotSupported for a model without the markers, and BadRequest."""
    if rules.lacks_fim:
        raise NotSupported(
            "this model cannot fill in the middle: its tokenizer has no marker for the "
            f"{', '.join(rules.lacks_fim)}"
        )
    fields = Reader(body)
    check_types(fields)
    prompt = InfillPrompt(
        prefix=fields.required_string("input_prefix"),
        suffix=fields.required_string("input_suffix"),
        text=given(fields.string("prompt"), ""),
        extra=_extra(fields),
    )
    _refuse_markers(fields, prompt, rules.fim_words)
    arrival = Arrival(
        id=request_id,
        settings=settings,
        received_s=received_s,
        rules=rules,
        lane=lane,
        draw=draw,
    )
    return read_asked(fields, prompt, arrival)


def _refuse_markers(fields: Reader, prompt: InfillPrompt, words: Sequence[str]) -> None:
    """A marker may also come about where `prompt` goes on with the prefix."""
    texts = [
        ("input_prefix", prompt.prefix),
        ("prompt", prompt.prefix + prompt.text),
        ("input_suffix", prompt.suffix),
    ]
    for place, (name, text) in enumerate(prompt.extra):
        texts += [(f"input_extra.{place}.filename", name), (f"input_extra.{place}.text", text)]
    for field, text in texts:
        found = next((word for word in words if word in text), None)
        if found is not None:
            raise fields.refuse(field, f"holds {found}, a marker of this model; take it out")


def _extra(fields: Reader) -> tuple[tuple[str, str], ...]:
    """Names and texts."""
    name = "input_extra"
    sent = fields.items(name) or ()
    if len(sent) > FILES:
        raise fields.refuse(name, f"wants at most {FILES} files, got {len(sent)}")
    return tuple(_file(fields, f"{name}.{place}", entry) for place, entry in enumerate(sent))


def _file(fields: Reader, name: str, entry: object) -> tuple[str, str]:
    if not isinstance(entry, dict):
        raise fields.refuse(name, f"wants an object with text and filename, got {shown(entry)}")
    inner = Reader(entry, fields.name(name))
    return given(inner.string("filename"), UNNAMED), inner.required_string("text")
