"""Texts of flags and variables that hold several values in a form of their own.

Every reader raises ValueError with the rule the text breaks.
"""

import math
import re
from pathlib import Path

from mlxcel.core.language import parse_list, to_config
from mlxcel.core.settings import LanguageBias

_TOKEN = re.compile(r"(\d{1,10})([+-].+)", re.ASCII)
_LOOP = re.compile(r"(\d{1,9}),(\d{1,9}),(\d{1,9})", re.ASCII)
_LOOP_WORDS = {"off": (0, 0, 0), "on": (1, 20, 4)}
BAN = "-inf"
"""Minus infinity as JSON can say it."""


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is not a number") from None
    if "_" in text or not math.isfinite(value):
        raise ValueError("is not a finite number")
    return value


def token_bias(text: str) -> list[object]:
    """`15043+1`, `15043-0.5` and `15043-inf` as [id, bias]."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise ValueError("is not a token id with its bias, such as 15043+1, 15043-1 or 15043-inf")
    return [int(match[1]), BAN if match[2] == BAN else number(match[2])]


def languages(text: str) -> list[object]:
    """`ja=-5,zh=-inf` as [code, bias] pairs, in order."""
    ordered: list[object] = to_config(LanguageBias(bias=parse_list(text)))["bias_set"]["ordered"]
    return ordered


def loop(text: str) -> dict[str, int]:
    """`off`, `on`, or `MIN,MAX,COUNT`."""
    match = _LOOP.fullmatch(text)
    word = text.lower()
    if match is None and word not in _LOOP_WORDS:
        raise ValueError("is none of off, on and MIN,MAX,COUNT (on: 1,20,4)")
    least, most, count = map(int, match.groups()) if match else _LOOP_WORDS[word]
    if least > most:
        raise ValueError(f"is MIN,MAX,COUNT with a MIN, {least}, above its MAX, {most}")
    return {"max_pattern_size": most, "min_pattern_size": least, "min_count": count}


def adapter(text: str) -> dict[str, object]:
    return {"path": str(Path(text).expanduser()), "scale": 1.0}


def scaled_adapter(text: str) -> dict[str, object]:
    """`DIR:SCALE`."""
    folder, colon, scale = text.rpartition(":")
    if not colon or not folder:
        raise ValueError("is not a folder with its scale, such as adapters/style:0.5")
    try:
        return {**adapter(folder), "scale": number(scale)}
    except ValueError as error:
        raise ValueError(f"has a scale, {scale}, that {error}") from error
