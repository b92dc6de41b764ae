"""The text of a flag or variable as a typed value. Bounds are not known here: schemas have them.

Every reader raises ValueError with the rule the text breaks.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from mlxcel.config import flag_forms
from mlxcel.config.flag_table import SPLIT, Row
from mlxcel.core.errors import StartupError
from mlxcel.core.keys import read_key_files

_TRUE = frozenset({"on", "enabled", "true", "1"})
_FALSE = frozenset({"off", "disabled", "false", "0"})
_SIZE = re.compile(r"(\d+)|(\d+(?:\.\d+)?) *([KMG])B?", re.ASCII | re.IGNORECASE)
_ESCAPE = re.compile(r"\\([ntr\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_POWER = {"K": 10, "M": 20, "G": 30}
_NO_KEY = "holds no key; give one, or leave it out for a server that asks for none"


def read_value(row: Row, text: str) -> object:
    """The tree value of one text: a list for a row that repeats, empty when it clears one."""
    if row.type == "texts" and text == "none":
        return []
    values = [_one(row, part) for part in _parts(row, text)]
    if not values:
        raise ValueError(_NO_KEY if row.type == "secret" else "names nothing; leave it out")
    return values if row.repeats else values[0]


def read_switch(row: Row, text: str | None, *, negated: bool = False) -> object:
    """The value of a `flag`, `no-flag` or `bool`; `text` is what stood after `=`."""
    if row.type != "bool" and text is not None:
        raise ValueError("takes no value")
    said = True if text is None else boolean(text)
    if row.type == "no-flag" or negated:
        return _switched(row, not said)
    return _switched(row, said)


def read_variable(row: Row, text: str) -> object:
    """Like `read_value`, with the rule of variables for switches."""
    if row.type == "no-flag":
        # NO_COLOR and its kin are not boolean words: whatever they say, they say it.
        return False
    if row.type in ("flag", "bool"):
        said = row.words.get(text.strip().lower())
        return _switched(row, boolean(text) if said is None else bool(said))
    return read_value(row, text)


def switched_off(row: Row) -> object:
    """What a negated variable sets."""
    return _switched(row, False)


def _switched(row: Row, said: bool) -> object:
    value = row.const if said else False
    return row.map.get(value, value)


def boolean(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("is none of on, enabled, true, 1, off, disabled, false, 0")


def _parts(row: Row, text: str) -> list[str]:
    if not (row.repeats and row.type in SPLIT):
        return [text]
    if row.type == "secret":
        # CSV, nothing trimmed: a key may hold spaces, and commas between quotes.
        return [part for part in next(csv.reader([text]), []) if part]
    return [part.strip() for part in text.split(",") if part.strip()]


def _one(row: Row, text: str) -> object:
    if (word := text.strip().lower()) in row.words:
        return row.words[word]
    for pattern, reason in row.reject.items():
        if re.search(pattern, text):
            raise ValueError(reason)
    if row.allowed and text not in row.allowed:
        raise ValueError(f"is none of {', '.join(row.allowed)}")
    value = _READERS[row.type](text)
    if row.fold and isinstance(value, int):
        value %= 1 << row.fold
    if row.scale and isinstance(value, float):
        value = _scaled(value, row.scale)
    if row.exists and not Path(str(value)).is_file():
        raise ValueError("is not a file")
    if row.keys:
        _require_keys(str(value))
    return row.map.get(value, row.map.get("*", value)) if row.map else value


def _require_keys(path: str) -> None:
    """Whoever names a key file does not expect a server that asks for no key."""
    try:
        read_key_files([path])
    except StartupError as error:
        raise ValueError(f"cannot be used: {error.message}") from error


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,30}", text, re.ASCII):
        raise ValueError("is not an integer")
    return int(text)


def _size(text: str) -> int | None:
    if text.lower() == "none":
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("is not a size: bytes, or a number with K, M or G (1.5G)")
    if match[1]:
        return int(match[1])
    try:
        return int(float(match[2]) * (1 << _POWER[match[3].upper()]))
    except OverflowError:
        raise ValueError("is too large") from None


def _scaled(number: float, scale: int) -> int:
    try:
        return int(number * scale)
    except OverflowError:
        raise ValueError("is too large") from None


def _json(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _file(text: str) -> str:
    if not text:
        raise ValueError("is not a path")
    return str(Path(text).expanduser())


def _content(text: str) -> str:
    path = _file(text)
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot be read as UTF-8 text: {error}") from error


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)


_READERS: Mapping[str, Callable[[str], object]] = {
    "int": _integer,
    "float": flag_forms.number,
    "str": str,
    "word": str.strip,
    "size": _size,
    "list": str,
    "texts": _unescaped,
    "text": _unescaped,
    "bias": flag_forms.token_bias,
    "languages": flag_forms.languages,
    "loop": flag_forms.loop,
    "adapters": flag_forms.adapter,
    "scaled-adapters": flag_forms.scaled_adapter,
    "json": _json,
    "file": _file,
    "content": _content,
    "secret": str,
    "choice": lambda text: text.replace("-", "_"),
}
