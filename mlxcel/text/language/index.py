"""The scripts of every token of a vocabulary, and the bias of a language on its tokens.

A vocabulary is classified once, in a second or two, and kept as a file. Bytes that are no whole
character are classified by what they may become: by their start byte, and the bytes after it.
"""

import re
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mlxcel.core.settings import LanguageBias
from mlxcel.text.language.kept import TOKEN, kept_tokens
from mlxcel.text.language.scripts import LAST, LATIN, SCRIPTS, Marks, letters_of, marks_of
from mlxcel.text.tokenizer import TextModel

FORCED = 1e3
"""What plus infinity adds: far above every logit, yet the logits of the language's tokens keep
their differences, which infinity would swallow."""

MODELS = 4
BIASES = 8
"""Kept: settings change seldom, requests ask every time."""

SPECIAL, FRAGMENT = 1, 2

PAIR = np.dtype([("token", "<i4"), ("value", "<f4")])
"""As `link.messages.pack_bias` lays pairs out."""

_ASCII_LETTER = re.compile(rb"[A-Za-z]")
_CONTINUED = bytes(range(0x80, 0xC0))
_LEADS = (0xC2, 0xE0, 0xF0, 0xF5)
"""Where the start bytes of two, three and four bytes begin, and where they end."""

Bools = np.ndarray[Any, np.dtype[np.bool_]]
_lock = threading.Lock()


def language_bias(
    text: TextModel,
    bias: LanguageBias | None,
    cache_dir: Path | None,
    *,
    vocab_size: int | None = None,
) -> bytes:
    """For `SamplingParams.wide_bias`, by rising token id; b"" when off. Cheap but for the first
    call of a model, which `prepare` may do ahead. May be called from several threads.

    `vocab_size` leaves out tokens that the model has no logits for.
    """
    if bias is None or not bias.bias:
        return b""
    return _index(text, cache_dir).packed(bias, vocab_size)


def fragments(text: TextModel, cache_dir: Path | None) -> tuple[int, ...]:
    """The tokens that are, or end or begin with, a part of a character."""
    return _index(text, cache_dir).fragments


def prepare(text: TextModel, cache_dir: Path | None, *, rebuild: bool = False) -> None:
    """Read or build the index now; `rebuild` passes over a stored one."""
    if rebuild and cache_dir is not None:
        with _lock:
            kept_tokens(text, cache_dir, _classified, rebuild=True)
            _indexes.cache_clear()
    _index(text, cache_dir)


def _index(text: TextModel, cache_dir: Path | None) -> "LanguageIndex":
    with _lock:  # one thread classifies, the others wait for it
        return _indexes(text, cache_dir)


class LanguageIndex:
    """Of one vocabulary. Immutable."""

    def __init__(self, tokens: np.ndarray[Any, Any], ends: tuple[int, ...]) -> None:
        self._tokens = tokens
        self._is_special = (tokens["flags"] & SPECIAL) != 0
        # An end of text is always spared, marked as special or not: answers would not end.
        self._is_special[[end for end in ends if end < len(tokens)]] = True
        self._is_fragment: Bools = (tokens["flags"] & FRAGMENT) != 0
        self.fragments: tuple[int, ...] = tuple(np.flatnonzero(self._is_fragment).tolist())
        self.packed = lru_cache(maxsize=BIASES)(self._packed)

    def owners(self, bias: LanguageBias) -> np.ndarray[Any, np.dtype[np.int64]]:
        """For each token the place in `bias.bias` of the language that owns it, or -1. The
        first one that claims a token owns it."""
        owners = np.full(len(self._tokens), -1)
        free = self._eligible(bias)
        for place, (code, _) in enumerate(bias.bias):
            claimed = free & self._claimed(SCRIPTS[code], bias)
            owners[claimed] = place
            free &= ~claimed
        return owners

    def _packed(self, bias: LanguageBias, vocab_size: int | None) -> bytes:
        owners = self.owners(bias)[:vocab_size]
        owned = np.flatnonzero(owners >= 0)
        numbers = np.clip([number for _, number in bias.bias], -np.inf, FORCED)
        pairs = np.zeros(len(owned), PAIR)
        pairs["token"] = owned
        with np.errstate(over="ignore"):  # beyond float32 is minus infinity
            pairs["value"] = numbers[owners[owned]]
        packed: bytes = pairs[pairs["value"] != 0].tobytes()
        return packed

    def _eligible(self, bias: LanguageBias) -> Bools:
        eligible = np.ones(len(self._tokens), np.bool_)
        if not bias.include_special:
            eligible &= ~self._is_special
        if not bias.include_byte_fragments:
            eligible &= ~self._is_fragment
        return eligible

    def _claimed(self, scripts: int, bias: LanguageBias) -> Bools:
        """Letters decide; numerals and punctuation of a script do where there are none."""
        letters = self._tokens["letters"]
        others = np.zeros_like(letters)
        if bias.include_numeric:
            others |= self._tokens["numerals"]
        if bias.include_punctuation:
            others |= self._tokens["punctuation"]
        seen = letters | others if bias.is_strict else np.where(letters != 0, letters, others)
        touched: Bools = (seen & scripts) != 0
        return touched if bias.is_strict else touched & ((seen & ~np.uint16(scripts)) == 0)


@lru_cache(maxsize=MODELS)
def _indexes(text: TextModel, cache_dir: Path | None) -> LanguageIndex:
    return LanguageIndex(kept_tokens(text, cache_dir, _classified), text.eos_ids)


def _classified(text: TextModel) -> np.ndarray[Any, Any]:
    tokens = np.zeros(text.vocabulary.size, TOKEN)
    for token, said, is_special in _said(text):
        read = _read(said)
        flags = (SPECIAL if is_special else 0) | (FRAGMENT if read.is_fragment else 0)
        marks = read.marks
        tokens[token] = (marks.letters, marks.numerals, marks.punctuation, flags)
    return tokens


def _said(text: TextModel) -> Iterator[tuple[int, bytes, bool]]:
    """Each token with its bytes, and whether it is special; those say their own names here."""
    words = text.vocabulary
    special = {words.id_of(word): word.encode() for word in words.specials}
    for token, said in words._spoken():
        yield token, special.get(token, said), token in special


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    marks: Marks
    is_fragment: bool = False


_ASCII = (_Said(marks=Marks()), _Said(marks=Marks(letters=LATIN)))


def _read(said: bytes) -> _Said:
    if said.isascii():
        return _ASCII[_ASCII_LETTER.search(said) is not None]
    try:
        whole = said.decode()
    except UnicodeDecodeError:
        return _Said(marks=_marks_of_parts(said), is_fragment=True)
    # Where only the library can decode, a part of a character is a replacement character.
    return _Said(marks=marks_of(whole), is_fragment="\ufffd" in whole)


def _marks_of_parts(said: bytes) -> Marks:
    """Of what is whole, and of what an unfinished character at the end may become."""
    whole = marks_of(said.decode(errors="ignore"))
    start = len(said.rstrip(_CONTINUED)) - 1
    opened = letters_of_start(said[start:]) if start >= 0 else 0
    return Marks(
        letters=whole.letters | opened,
        numerals=whole.numerals,
        punctuation=whole.punctuation,
    )


@lru_cache(maxsize=1024)
def letters_of_start(part: bytes) -> int:
    """The scripts of the letters that a start byte, and what follows it, may become."""
    size = bisect_right(_LEADS, part[0]) + 1
    if not 2 <= size <= 4 or len(part) >= size:
        return 0
    point = part[0] & (0x7F >> size)
    for byte in part[1:]:
        point = point << 6 | byte & 0x3F
    open_bits = 6 * (size - len(part))
    # Overlong forms, as E0 80, are no characters.
    first = max(point << open_bits, (0, 0, 0x80, 0x800, 0x10000)[size])
    return letters_of(range(first, min((point + 1) << open_bits, LAST + 1)))
