"""What bytes a token stands for, where the tokenizer's decoder allows such a reading.

Two decoders do: the byte level of GPT-2 and its heirs, and SentencePiece with byte fallback.
For these, decoding is joining bytes, so a character split over tokens costs nothing.
"""

import json
import re
from typing import Any

from tokenizers import Tokenizer

from mlxcel.text.bytes import BYTE_OF_CHAR

SPACE_MARK = "\u2581"
"""How SentencePiece writes a space inside a token."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE = (
    {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
)
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


class Pieces:
    """Token id -> bytes, looked up once per id. Special tokens and unknown ids have none."""

    def __init__(self, tokenizer: Tokenizer, *, is_byte_level: bool, drops_space: bool) -> None:
        self._tokenizer = tokenizer
        self.is_byte_level = is_byte_level
        self._read = _byte_level if is_byte_level else _sentencepiece
        added = tokenizer.get_added_tokens_decoder().items()
        self.special = frozenset(n for n, token in added if token.special)
        self._known = dict.fromkeys(self.special, b"")
        self.drops_space = drops_space
        """The space before the first word of a text is an artefact and is left out."""

    def __getitem__(self, token: int) -> bytes:
        known = self._known.get(token)
        if known is None:
            word = self._tokenizer.id_to_token(token)
            known = self._known[token] = b"" if word is None else self._read(word)
        return known

    def read(self, token: int, word: str) -> bytes:
        """The same for a token whose word is at hand; nothing is kept."""
        return b"" if token in self.special else self._read(word)


def pieces_of(tokenizer: Tokenizer) -> Pieces | None:
    """None: the decoder is of another kind, only the library can run it."""
    steps = _decoder_steps(tokenizer)
    if [step["type"] for step in steps] == ["ByteLevel"]:
        return Pieces(tokenizer, is_byte_level=True, drops_space=False)
    if tuple(steps[:3]) == _SENTENCEPIECE and steps[3:] in ([], [_STRIP]):
        return Pieces(tokenizer, is_byte_level=False, drops_space=len(steps) == 4)
    return None


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    if tokenizer.decoder is None:
        return []
    state: dict[str, Any] = json.loads(tokenizer.decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]


def _byte_level(word: str) -> bytes:
    # As the library: an added token with characters outside the alphabet is plain text.
    values = [BYTE_OF_CHAR.get(char) for char in word]
    known = [value for value in values if value is not None]
    return bytes(known) if len(known) == len(word) else word.encode()


def _sentencepiece(word: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(word):
        return bytes([int(match[1], 16)])
    return word.replace(SPACE_MARK, " ").encode()
