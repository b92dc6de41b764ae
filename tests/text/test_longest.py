"""The least number of tokens of a text, told without encoding it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from mlxcel.text.bytes import byte_tokenizer
from mlxcel.text.longest import bound_of
from mlxcel.text.pieces import pieces_of
from mlxcel.text.tokenizer import byte_text_model
from tests.text.thinkers import speaker

BYTES = byte_text_model()
LONG = "<|a rather long special token|>"


def bound(tokenizer: Tokenizer) -> object:
    return bound_of(tokenizer, pieces_of(tokenizer))


@given(st.text() | st.lists(st.sampled_from(["<|bos|>", "a", "é"])).map("".join))
def test_no_text_has_fewer_tokens(text: str) -> None:
    assert BYTES.least_tokens(text) <= len(BYTES.encode(text))


@pytest.mark.parametrize("special", [True, False])
def test_the_longest_token_counts_special_or_not(special: bool) -> None:
    text = speaker([LONG], special=special)
    assert text.least_tokens(LONG * 50) == len(text.encode(LONG * 50)) == 50


@given(st.text(alphabet="\u1100\u1161\u11a8e\u0301a"))
def test_a_text_that_becomes_shorter_has_no_fewer_tokens_either(text: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.normalizer = normalizers.NFC()
    known = bound_of(tokenizer, pieces_of(tokenizer))
    assert known is not None
    assert known.least_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False).ids)


def test_bytes_the_vocabulary_lacks_are_not_counted() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = byte_tokenizer().decoder
    known = bound_of(tokenizer, pieces_of(tokenizer))
    assert known is not None
    assert known.least_tokens("bab" * 10) == len(tokenizer.encode("bab" * 10).ids) == 10


def test_nothing_is_said_of_a_tokenizer_that_may_drop_text() -> None:
    lower, strips, splits = byte_tokenizer(), byte_tokenizer(), byte_tokenizer()
    lower.normalizer = normalizers.Strip()
    strips.add_special_tokens([AddedToken("<|x|>", rstrip=True)])
    splits.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()]
    )
    assert [bound(one) for one in (lower, strips, splits)] == [None] * 3
    assert bound(byte_tokenizer()) is not None
