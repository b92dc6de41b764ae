"""The field `logit_bias`: token ids, as the strings JSON makes of keys, to numbers."""

import re

from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.openai.numbers import clamped

NAME = "logit_bias"
ENTRIES = 1024
LARGEST = 1e4
"""Decides alone what is drawn, and leaves room for differences in float32."""

_ID = re.compile(r"\d{1,10}", re.ASCII)


def read_bias(fields: Reader) -> tuple[tuple[int, float], ...]:
    """Sorted by id. Whether the ids are in the vocabulary is not known here."""
    sent = fields.mapping(NAME) or {}
    if len(sent) > ENTRIES:
        raise fields.refuse(NAME, f"wants at most {ENTRIES} tokens, got {len(sent)}")
    found: dict[int, float] = {}
    for key, value in sent.items():
        token = _token(fields, key)
        if token in found:
            raise fields.refuse(NAME, f"names token {token} twice, the second time as {shown(key)}")
        found[token] = _value(fields, key, value)
    return tuple(sorted(found.items()))


def _token(fields: Reader, key: str) -> int:
    if not _ID.fullmatch(key):
        rule = f"wants token ids as keys, integers of at least 0 in quotes, got {shown(key)}"
        raise fields.refuse(NAME, rule)
    return int(key)


def _value(fields: Reader, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise fields.refuse(NAME, f"wants a number for token {key}, got {shown(value)}")
    return clamped(float(value), -LARGEST, LARGEST)
