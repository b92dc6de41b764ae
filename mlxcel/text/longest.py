"""How few tokens a text can possibly be: its bytes over those of the longest token.

That holds only where a tokenizer loses nothing on the way; of any other nothing is said.
"""

import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from mlxcel.text.bytes import BYTE_OF_CHAR
from mlxcel.text.pieces import SPACE_MARK, Pieces

NFC_SHRINKS = 3
"""Times at most: three Hangul letters of three bytes each become a syllable of three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    longest: int
    """Bytes of a text that one token stands for at most."""
    lost: bytes
    """Bytes that the vocabulary does not have, and that leave no token."""

    def least_tokens(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        return -(-len(data.translate(None, self.lost)) // self.longest)


def bound_of(tokenizer: Tokenizer, pieces: Pieces | None) -> Bound | None:
    """Walks the vocabulary: keep the result. None: texts may shrink in ways not known here."""
    added = tokenizer.get_added_tokens_decoder().values()
    if pieces is None or type(tokenizer.model).__name__ != "BPE":
        return None
    if any(token.lstrip or token.rstrip for token in added):
        return None  # they swallow the white space beside them, however much it is
    shrinks = _shrinks(_steps(tokenizer.normalizer, "normalizers"))
    if shrinks is None or not all(map(_is_kept, _steps(tokenizer.pre_tokenizer, "pretokenizers"))):
        return None
    words = tokenizer.get_vocab(with_added_tokens=True)
    sizes = [len(pieces.read(token, word)) for word, token in words.items()]
    sizes += [len(token.content.encode()) for token in added]
    lost = bytes(byte for char, byte in BYTE_OF_CHAR.items() if char not in words)
    return Bound(
        longest=max(sizes, default=1) * shrinks,
        lost=lost if pieces.is_byte_level else b"",
    )


def _steps(part: Any, key: str) -> list[dict[str, Any]]:
    """A normalizer or a pre-tokenizer as the steps it is made of."""
    if part is None:
        return []
    state: dict[str, Any] = json.loads(part.__getstate__())
    return state[key] if state["type"] == "Sequence" else [state]


def _shrinks(normalizers: list[dict[str, Any]]) -> int | None:
    """How many times shorter a text may become; None: not known."""
    times = 1
    for step in normalizers:
        match step:
            case {"type": "NFC"}:
                times *= NFC_SHRINKS
            case {"type": "Prepend"}:
                pass
            case {"type": "Replace", "pattern": {"String": " "}, "content": str(mark)}:
                if mark != SPACE_MARK:
                    return None
            case _:
                return None
    return times


def _is_kept(step: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer leaves all of the text."""
    match step:
        case {"type": "ByteLevel" | "Digits" | "Metaspace"}:
            return True
        case {"type": "Split", "behavior": str(behavior)}:
            return behavior != "Removed"
        case _:
            return False
