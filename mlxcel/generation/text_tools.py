"""The tokenizer of the served model, for clients that count and cut texts themselves."""

from collections.abc import Sequence

from mlxcel.core.errors import BadRequest
from mlxcel.text.tokenizer import TextModel


class TextTools:
    """Implements `core.ports.TextTools`. May be used from several threads."""

    def __init__(self, text: TextModel) -> None:
        self._text = text

    def encode(self, text: str, *, adds_special: bool, parses_special: bool) -> list[int]:
        if not parses_special:
            return self._text.encode_plain(text, adds_special=adds_special)
        return self._text.encode_around(text) if adds_special else self._text.encode(text)

    def piece(self, token: int) -> bytes:
        self._check(token)
        return self._text.vocabulary.bytes_of(token)

    def decode(self, ids: Sequence[int]) -> str:
        for token in ids:
            self._check(token)
        return self._text.decode(ids)

    def _check(self, token: int) -> None:
        if not self._text.vocabulary.has_id(token):
            size = self._text.vocabulary.size
            raise BadRequest(
                f"token {token} is not in the vocabulary, whose ids go from 0 to {size - 1}",
                param="tokens",
            )
