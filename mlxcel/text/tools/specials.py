"""Which texts of a format's markup are single tokens."""

from collections.abc import Iterable

from tokenizers import Tokenizer


def special_words(tokenizer: Tokenizer, words: Iterable[str]) -> dict[str, int]:
    """Those of the words that llguidance matches as a token and never as text, with their ids:
    added tokens that are special, or that are written in angle brackets."""
    added = tokenizer.get_added_tokens_decoder()
    known = {token.content: (id, token.special) for id, token in added.items()}
    return {
        word: known[word][0]
        for word in words
        if word in known and (known[word][1] or (word.startswith("<") and word.endswith(">")))
    }
