"""Byte tokenizers that know the markers of a model that thinks or calls tools."""

from collections.abc import Sequence

from tokenizers import AddedToken

from mlxcel.core.byte_vocab import TURN_ENDS
from mlxcel.text.bytes import BYTE_TEMPLATE, byte_tokenizer
from mlxcel.text.tokenizer import TextModel

THINK, UNTHINK = 263, 264
"""Ids of the first two words a `speaker` is given."""


def speaker(
    words: Sequence[str] = ("<think>", "</think>"),
    *,
    special: bool = True,
    template: str = BYTE_TEMPLATE,
) -> TextModel:
    """Each of the words is one token, from id 263 on."""
    tokenizer = byte_tokenizer()
    added = [AddedToken(word, special=special, normalized=False) for word in words]
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)
    return TextModel(tokenizer, eos_ids=TURN_ENDS, special_tokens={}, chat_template=template)
