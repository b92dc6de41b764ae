"""The field `logit_bias` of a native completion: tokens by id or by text.

Texts are made tokens where the vocabulary is known.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.logit_bias import ENTRIES, LARGEST
from mlxcel.protocols.openai.numbers import clamped

NAME = "logit_bias"
TEXT_CHARS = 1024
LARGEST_ID = 2**31 - 1

_ID = re.compile(r"\d{1,10}", re.ASCII)

Ids = tuple[tuple[int, float], ...]
Texts = tuple[tuple[str, float], ...]


def read_bias(fields: Reader, fixed: Ids = ()) -> tuple[Ids, Texts]:
    """The request's, those by id added to the server's own and sorted. An entry that comes again
    is added. Minus infinity bans, and stays."""
    ids: dict[int, float] = {}
    texts: dict[str, float] = {}
    for token, value in fixed:
        ids[token] = _sum(ids.get(token, 0.0), value)
    for key, value in _entries(fields):
        if isinstance(key, int):
            ids[key] = _sum(ids.get(key, 0.0), value)
        else:
            texts[key] = _sum(texts.get(key, 0.0), value)
    return tuple(sorted(ids.items())), tuple(texts.items())


def _sum(one: float, other: float) -> float:
    return min(one + other, LARGEST)


def _entries(fields: Reader) -> Iterator[tuple[int | str, float]]:
    sent = fields.body.get(NAME)
    if sent is None:
        return
    if not isinstance(sent, dict | list):
        rule = f"wants an array of [token, bias] or an object, got {shown(sent)}"
        raise fields.refuse(NAME, rule)
    if len(sent) > ENTRIES:
        raise fields.refuse(NAME, f"wants at most {ENTRIES} tokens, got {len(sent)}")
    if isinstance(sent, dict):
        for key, value in sent.items():
            token = int(key) if _ID.fullmatch(key) else key
            yield _token(fields, token), _value(fields, token, value)
        return
    for entry in sent:
        if not isinstance(entry, list) or len(entry) != 2:
            raise fields.refuse(NAME, f"wants pairs [token, bias], got {shown(entry)}")
        yield _token(fields, entry[0]), _value(fields, entry[0], entry[1])


def _token(fields: Reader, token: Any) -> int | str:
    if type(token) is int and 0 <= token <= LARGEST_ID:
        return token
    if isinstance(token, str):
        if 0 < len(token) <= TEXT_CHARS:
            return token
        rule = f"wants texts of 1 to {TEXT_CHARS} characters, got one of {len(token)}"
        raise fields.refuse(NAME, rule)
    rule = f"wants a token id from 0 to {LARGEST_ID} or a text, got {shown(token)}"
    raise fields.refuse(NAME, rule)


def _value(fields: Reader, token: Any, value: Any) -> float:
    if value is False:
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        rule = f"wants a number, or false to ban, for token {shown(token)}, got {shown(value)}"
        raise fields.refuse(NAME, rule)
    return clamped(float(value), -LARGEST, LARGEST)
