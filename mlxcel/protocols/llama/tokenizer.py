"""`/tokenize` and `/detokenize`: from texts to tokens and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import BadField, BadRequest
from mlxcel.core.ports import TextTools
from mlxcel.protocols.fields import Reader, json_type, shown

CONTENT = "content"
TOKENS = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeRead:
    """What is to become tokens, in order: texts, and tokens as they are."""

    parts: tuple[str | int, ...]
    adds_special: bool
    parses_special: bool
    with_pieces: bool


def read_tokenize(body: Mapping[str, Any]) -> TokenizeRead:
    fields = Reader(body)
    adds, parses = fields.boolean("add_special"), fields.boolean("parse_special")
    return TokenizeRead(
        parts=_parts(fields),
        adds_special=bool(adds),
        parses_special=parses is None or parses,
        with_pieces=bool(fields.boolean("with_pieces")),
    )


def tokenized_body(read: TokenizeRead, text: TextTools) -> dict[str, Any]:
    """Raises BadRequest for a token that is not in the vocabulary."""
    ids: list[int] = []
    for place, part in enumerate(read.parts):
        if isinstance(part, int):
            _check_known(part, place, text)
            ids.append(part)
            continue
        adds_special = read.adds_special and place == 0
        ids += text.encode(part, adds_special=adds_special, parses_special=read.parses_special)
    if not read.with_pieces:
        return {"tokens": ids}
    return {"tokens": [{"id": token, "piece": _shown(text.piece(token))} for token in ids]}


def read_detokenize(body: Mapping[str, Any]) -> Sequence[int]:
    fields = Reader(body)
    sent = fields.items(TOKENS)
    for place, token in enumerate(sent or ()):
        if not _is_id(token):
            raise fields.refuse(f"{TOKENS}.{place}", _wanted("a token id", token))
    return sent or ()


def detokenized_body(ids: Sequence[int], text: TextTools) -> dict[str, Any]:
    """Raises BadRequest for a token that is not in the vocabulary."""
    return {"content": text.decode(ids)}


def _parts(fields: Reader) -> tuple[str | int, ...]:
    sent = fields.body.get(CONTENT)
    if sent is None:
        return ()
    if isinstance(sent, str):
        return (sent,)
    if not isinstance(sent, list):
        raise fields.refuse(CONTENT, _wanted("a string or an array of strings and token ids", sent))
    for place, part in enumerate(sent):
        if not isinstance(part, str) and not _is_id(part):
            raise fields.refuse(f"{CONTENT}.{place}", _wanted("a string or a token id", part))
    return tuple(sent)


def _check_known(token: int, place: int, text: TextTools) -> None:
    try:
        text.piece(token)
    except BadRequest as why:
        raise BadField(f"{CONTENT}.{place}", why.message) from why


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wanted(what: str, value: object) -> str:
    return f"wants {what}, got {json_type(value)} {shown(value)}"


def _shown(piece: bytes) -> str | list[int]:
    """A piece that is not whole UTF-8 by its bytes."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
