"""The field `logit_bias`: token ids, as the strings JSON makes of keys, to numbers."""

import re

from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.numbers import clamped

NAME = "logit_bias"
ENTRIES = 1024
LARGEST = 1e4
"""Decides alone what is drawn, and leaves room for differences in float32."""

_ID = re.compile(r"\d{1,10}", re.ASCII)


Bias = tuple[tuple[int, float], ...]


def read_bias(fields: Reader, fixed: Bias = ()) -> Bias:
    """The request's, added to the server's own; sorted by id. Whether the ids are in the
    vocabulary is not known here."""
    sent = _sent(fields)
    if not fixed:
        return tuple(sorted(sent.items()))
    found = dict.fromkeys((*sent, *(token for token, _ in fixed)), 0.0)
    for token, value in (*fixed, *sent.items()):
        # Minus infinity stays: what the operator has banned no request brings back.
        found[token] = min(found[token] + value, LARGEST)
    return tuple(sorted(found.items()))


def _sent(fields: Reader) -> dict[int, float]:
    sent = fields.mapping(NAME) or {}
    if len(sent) > ENTRIES:
        raise fields.refuse(NAME, f"wants at most {ENTRIES} tokens, got {len(sent)}")
    found: dict[int, float] = {}
    for key, value in sent.items():
        token = _token(fields, key)
        if token in found:
            raise fields.refuse(NAME, f"names token {token} twice, the second time as {shown(key)}")
        found[token] = _value(fields, key, value)
    return found


def _token(fields: Reader, key: str) -> int:
    if not _ID.fullmatch(key):
        rule = f"wants token ids as keys, integers of at least 0 in quotes, got {shown(key)}"
        raise fields.refuse(NAME, rule)
    return int(key)


def _value(fields: Reader, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise fields.refuse(NAME, f"wants a number for token {key}, got {shown(value)}")
    return clamped(float(value), -LARGEST, LARGEST)
