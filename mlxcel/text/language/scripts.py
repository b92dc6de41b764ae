"""The scripts the languages are written in, as bits, and what a text holds of each.

A character belongs to a script by its Unicode block; its category says whether it counts as a
letter (marks are a part of one), a numeral or punctuation. Digits and punctuation shared by the
world's scripts, such as those of ASCII, belong to none.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

HIRAGANA, KATAKANA, HAN, HANGUL, LATIN, CYRILLIC, ARABIC, THAI, DEVANAGARI, HEBREW, GREEK = (
    1 << bit for bit in range(11)
)
OTHER = 1 << 11
"""Letters of any script not named here."""

SCRIPTS = {
    "ja": HIRAGANA | KATAKANA | HAN,
    "zh": HAN,
    "ko": HANGUL,
    "en": LATIN,
    "ru": CYRILLIC,
    "ar": ARABIC,
    "th": THAI,
    "hi": DEVANAGARI,
    "he": HEBREW,
    "el": GREEK,
}

LAST = 0x3FFFF
"""No letters are assigned above it."""

# First and last code point, from Blocks.txt; those of Latin leave out what is no letter.
_RANGES = (
    (0x0041, 0x005A, LATIN),
    (0x0061, 0x007A, LATIN),
    (0x00AA, 0x00AA, LATIN),
    (0x00BA, 0x00BA, LATIN),
    (0x00C0, 0x00D6, LATIN),
    (0x00D8, 0x00F6, LATIN),
    (0x00F8, 0x02B8, LATIN),
    (0x0370, 0x03FF, GREEK),
    (0x0400, 0x052F, CYRILLIC),
    (0x0591, 0x05FF, HEBREW),
    (0x0600, 0x06FF, ARABIC),
    (0x0750, 0x077F, ARABIC),
    (0x0870, 0x08FF, ARABIC),
    (0x0900, 0x097F, DEVANAGARI),
    (0x0E00, 0x0E7F, THAI),
    (0x1100, 0x11FF, HANGUL),
    (0x1C80, 0x1C8F, CYRILLIC),
    (0x1D00, 0x1D25, LATIN),
    (0x1D26, 0x1D2A, GREEK),
    (0x1D2B, 0x1D2B, CYRILLIC),
    (0x1D2C, 0x1D5C, LATIN),
    (0x1D5D, 0x1D61, GREEK),
    (0x1D62, 0x1D65, LATIN),
    (0x1D66, 0x1D6A, GREEK),
    (0x1D6B, 0x1DBF, LATIN),
    (0x1E00, 0x1EFF, LATIN),
    (0x1F00, 0x1FFF, GREEK),
    (0x2C60, 0x2C7F, LATIN),
    (0x2DE0, 0x2DFF, CYRILLIC),
    (0x2E80, 0x2FDF, HAN),
    (0x3000, 0x303F, HAN),
    (0x3040, 0x309F, HIRAGANA),
    (0x30A0, 0x30FF, KATAKANA),
    (0x3130, 0x318F, HANGUL),
    (0x3190, 0x319F, HAN),
    (0x31C0, 0x31EF, HAN),
    (0x31F0, 0x31FF, KATAKANA),
    (0x3400, 0x4DBF, HAN),
    (0x4E00, 0x9FFF, HAN),
    (0xA640, 0xA69F, CYRILLIC),
    (0xA720, 0xA7FF, LATIN),
    (0xA8E0, 0xA8FF, DEVANAGARI),
    (0xA960, 0xA97F, HANGUL),
    (0xAB30, 0xAB64, LATIN),
    (0xAC00, 0xD7FF, HANGUL),
    (0xF900, 0xFAFF, HAN),
    (0xFB00, 0xFB06, LATIN),
    (0xFB1D, 0xFB4F, HEBREW),
    (0xFB50, 0xFDFF, ARABIC),
    (0xFE30, 0xFE4F, HAN),
    (0xFE70, 0xFEFE, ARABIC),
    (0xFF01, 0xFF20, HAN),
    (0xFF21, 0xFF3A, LATIN),
    (0xFF3B, 0xFF40, HAN),
    (0xFF41, 0xFF5A, LATIN),
    (0xFF5B, 0xFF64, HAN),
    (0xFF65, 0xFF9F, KATAKANA),
    (0xFFA0, 0xFFDC, HANGUL),
    (0x1B000, 0x1B000, KATAKANA),
    (0x1B001, 0x1B16F, HIRAGANA),
    (0x1DF00, 0x1DFFF, LATIN),
    (0x1EE00, 0x1EEFF, ARABIC),
    (0x20000, 0x323AF, HAN),
)
_STARTS = [start for start, _, _ in _RANGES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The scripts of a text's letters, numerals and punctuation."""

    letters: int = 0
    numerals: int = 0
    punctuation: int = 0


def marks_of(text: str) -> Marks:
    letters = numerals = punctuation = 0
    for char in set(text):
        script, kind = _read(char)
        if kind == "L":
            letters |= script
        elif kind == "N":
            numerals |= script
        elif kind == "P":
            punctuation |= script
    return Marks(letters=letters, numerals=numerals, punctuation=punctuation)


def letters_of(points: Iterable[int]) -> int:
    """The scripts of the letters among code points."""
    found = 0
    for point in points:
        script, kind = _look_up(chr(point))
        if kind == "L":
            found |= script
    return found


def _look_up(char: str) -> tuple[int, str]:
    """(script, or 0; L for a letter, N, P, or what matters not)."""
    place = bisect_right(_STARTS, ord(char)) - 1
    _, end, script = _RANGES[place] if place >= 0 else (0, -1, 0)
    kind = unicodedata.category(char)[0]
    if ord(char) > end:
        return (OTHER if kind == "L" else 0), kind
    return script, "L" if kind == "M" else kind


_read = lru_cache(maxsize=1 << 16)(_look_up)
