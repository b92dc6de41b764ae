"""The language bias in the forms people write it: the list of a flag, a YAML file, a live
setting. Pure. What cannot be used raises ValueError, which says what would.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mlxcel.core.settings import LanguageBias

CODES = ("ja", "zh", "ko", "en", "ru", "ar", "th", "hi", "he", "el")
EXCEPTIONS = (
    "include_special",
    "include_numeric",
    "include_punctuation",
    "include_byte_fragments",
)
POLICIES = ("conservative", "strict")

_NUMBER = re.compile(r"[+-]?(inf|(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?)", re.ASCII | re.IGNORECASE)

Pairs = tuple[tuple[str, float], ...]


def parse_list(text: str) -> Pairs:
    """`ja=-5,zh=-inf`, in its order."""
    return _pairs(_split(entry) for entry in text.split(","))


def from_file(value: object) -> LanguageBias:
    """The content of a file: `policy`, `bias` (code: number, in order) and `exceptions`, each of
    which may be missing."""
    section = _section(value, "the file", ("policy", "bias", "exceptions"))
    bias = section.get("bias", {})
    if not isinstance(bias, Mapping):
        raise ValueError("bias must map language codes to numbers, such as {ja: -5.0}")
    return _language(_pairs(bias.items()), section)


def from_config(value: Mapping[str, Any]) -> LanguageBias:
    """The live setting `lang_bias_config`. Infinities are the strings `inf` and `-inf`.

    `rebuild_cache` is of the wire's form only: an index is rebuilt at the start.
    """
    names = ("bias_set", "policy", "exceptions", "rebuild_cache")
    section = _section(value, "lang_bias_config", names)
    _flag("rebuild_cache", section.get("rebuild_cache", False))
    chosen = section.get("bias_set", {"ordered": ()})
    ordered = _section(chosen, "bias_set", ("ordered",)).get("ordered")
    if not isinstance(ordered, list | tuple):
        raise ValueError('bias_set must hold a list, such as {"ordered": [["ja", -5.0]]}')
    return _language(_pairs(_two(pair) for pair in ordered), section)


def to_config(bias: LanguageBias) -> dict[str, Any]:
    """The other way round: plain JSON."""
    return {
        "bias_set": {"ordered": [[code, _plain(number)] for code, number in bias.bias]},
        "policy": "Strict" if bias.is_strict else "Conservative",
        "exceptions": {name: getattr(bias, name) for name in EXCEPTIONS},
        "rebuild_cache": False,
    }


def _language(pairs: Pairs, section: Mapping[str, Any]) -> LanguageBias:
    exceptions = _section(section.get("exceptions", {}), "exceptions", EXCEPTIONS)
    return LanguageBias(
        bias=pairs,
        is_strict=_policy(section.get("policy", POLICIES[0])) == "strict",
        **{name: _flag(name, value) for name, value in exceptions.items()},
    )


def _section(value: object, name: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object with {', '.join(known)}, not {value!r:.60}")
    if unknown := [key for key in value if key not in known]:
        raise ValueError(f"{name} has the unknown key {unknown[0]!r}; known: {', '.join(known)}")
    return value


def _policy(value: object) -> str:
    if not isinstance(value, str) or value.lower() not in POLICIES:
        raise ValueError(f"policy must be {' or '.join(POLICIES)}, not {value!r:.60}")
    return value.lower()


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {value!r:.60}")
    return value


def _split(entry: str) -> tuple[str, str]:
    code, equals, value = entry.partition("=")
    if not equals:
        raise ValueError(f"{entry.strip()!r} has no =; write code=bias, such as ja=-5")
    return code, value


def _two(pair: object) -> tuple[object, object]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ValueError(f'ordered must hold pairs such as ["ja", -5.0], not {pair!r:.60}')
    return pair[0], pair[1]


def _pairs(entries: Iterable[tuple[object, object]]) -> Pairs:
    found: dict[str, float] = {}
    for name, value in entries:
        code = _code(name)
        if code in found:
            raise ValueError(f"the language {code} is named twice")
        found[code] = _number(code, value)
    return tuple(found.items())


def _code(name: object) -> str:
    code = name.strip().lower() if isinstance(name, str) else name
    if code == "":
        raise ValueError(f"a language code is empty; known: {', '.join(CODES)}")
    if not isinstance(code, str) or code not in CODES:
        raise ValueError(f"{name!r:.60} is no language code; known: {', '.join(CODES)}")
    return code


def _number(code: str, value: object) -> float:
    text = value.strip() if isinstance(value, str) else None
    if text == "":
        raise ValueError(f"the bias of {code} is empty; write a number, inf or -inf")
    if text is not None and _NUMBER.fullmatch(text):
        return float(text)
    if text is None and isinstance(value, int | float) and not isinstance(value, bool):
        number = _double(value)
        if not math.isnan(number):
            return number
    raise ValueError(f"the bias of {code} must be a number, inf or -inf, not {value!r:.60}")


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _plain(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)
