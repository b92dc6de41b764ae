"""Token ids to text while they arrive: whole characters only, nothing said twice.

One detokenizer serves one answer. Special tokens say nothing but those that are `visible`: ids
and the text each is shown as. Knows nothing of stop strings or events.
"""

import codecs
from collections.abc import Iterable, Mapping
from typing import Protocol

from tokenizers import Tokenizer

from mlxcel.text.pieces import Pieces

BROKEN = "\ufffd"


class Detokenizer(Protocol):
    def feed(self, ids: Iterable[int]) -> str:
        """The text that is now certain."""
        ...

    def flush(self) -> str:
        """What was held back. A character that never became whole is one U+FFFD."""
        ...


class ByteDetokenizer:
    """Exact: bytes through an incremental UTF-8 decoder."""

    def __init__(self, pieces: Pieces, *, at_start: bool, visible: Mapping[int, str]) -> None:
        self._pieces = pieces
        self._visible = {token: text.encode() for token, text in visible.items()}
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._drop_space = at_start and pieces.drops_space

    def feed(self, ids: Iterable[int]) -> str:
        data = b"".join(self._visible.get(token) or self._pieces[token] for token in ids)
        if self._drop_space and data:
            self._drop_space = False
            data = data.removeprefix(b" ")
        return self._utf8.decode(data)

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class WindowDetokenizer:
    """For decoders that only the library can run: decodes the last pieces again and compares.

    Not `tokenizers.DecodeStream`: it raises when a token changes the text before it.
    """

    def __init__(self, tokenizer: Tokenizer, *, visible: Mapping[int, str]) -> None:
        self._tokenizer = tokenizer
        self._visible = visible
        self._said: list[int] = []
        """The ids of the last emission: context, because a decoder may look one token back."""
        self._fresh: list[int] = []

    def feed(self, ids: Iterable[int]) -> str:
        parts = []
        for token in ids:
            if token in self._visible:
                parts += [self.flush(), self._visible[token]]
            else:
                self._fresh.append(token)
        text = self._fresh_text()
        return "".join(parts) + ("" if text.endswith(BROKEN) else self._say(text))

    def flush(self) -> str:
        return self._say(self._fresh_text())

    def _fresh_text(self) -> str:
        before = self._tokenizer.decode(self._said, skip_special_tokens=True)
        whole = self._tokenizer.decode(self._said + self._fresh, skip_special_tokens=True)
        return whole[len(before) :]

    def _say(self, text: str) -> str:
        if text:
            self._said, self._fresh = self._fresh, []
        return text
