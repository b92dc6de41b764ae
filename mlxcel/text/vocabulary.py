"""A vocabulary by what its tokens say: the text of one, which ids hold a text, which are newlines.

A search walks all of it, up to a second for the largest, so each is done once.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from tokenizers import Tokenizer

from mlxcel.text.pieces import Pieces

MOST_IDS = 2**32
SEARCHES = 16
"""Results kept: each is asked for by every request while the settings stay as they are."""


class Vocabulary:
    """Special tokens say nothing in a search. May be used from several threads."""

    def __init__(self, tokenizer: Tokenizer, pieces: Pieces | None) -> None:
        self._tokenizer = tokenizer
        self._pieces = pieces
        self.ids_containing = lru_cache(maxsize=SEARCHES)(self._ids_containing)

    @cached_property
    def size(self) -> int:
        """One more than the largest id; a model may have room for more."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def specials(self) -> frozenset[str]:
        """The words of the special tokens."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return frozenset(token.content for token in added if token.special)

    def __contains__(self, word: object) -> bool:
        """Whether it is one token as a whole, special or not."""
        return isinstance(word, str) and self.id_of(word) is not None

    def id_of(self, word: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(word)
        return found

    def has_id(self, token: int) -> bool:
        is_in_range = 0 <= token < MOST_IDS  # else tokenizers raises OverflowError
        return is_in_range and self._tokenizer.id_to_token(token) is not None

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for; a special token for its own name. Need not be whole UTF-8."""
        word: str | None = self._tokenizer.id_to_token(token)
        if word is None:
            return b""
        if word in self.specials:
            return word.encode()
        if self._pieces is not None:
            return self._pieces[token]
        text: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return text.encode()

    def specials_among(self, ids: Iterable[int]) -> dict[int, str]:
        """Those of the ids that are special tokens, with their words."""
        found = ((token, self._tokenizer.id_to_token(token)) for token in ids)
        return {token: word for token, word in found if word in self.specials}

    @cached_property
    def newlines(self) -> tuple[int, ...]:
        """Tokens that are line ends and nothing else."""
        found = (t for t, said in self._spoken() if b"\n" in said and not said.strip(b"\r\n"))
        return tuple(sorted(found))

    def _ids_containing(self, texts: tuple[str, ...]) -> tuple[int, ...]:
        """The tokens that hold one of the texts as a whole; an empty text is in none."""
        wanted = [text.encode("utf-8", "surrogatepass") for text in texts if text]
        found = (t for t, said in self._spoken() if any(text in said for text in wanted))
        return tuple(sorted(found)) if wanted else ()

    def _spoken(self) -> Iterator[tuple[int, bytes]]:
        """Each token and its bytes."""
        for word, token in self._tokenizer.get_vocab(with_added_tokens=True).items():
            if self._pieces is not None:
                yield token, self._pieces.read(token, word)
            else:
                yield token, self._tokenizer.decode([token], skip_special_tokens=True).encode()
