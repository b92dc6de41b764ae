"""How many tokens stand before a place of a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.text.tokenizer import TextModel
from tests.text.merging import merging_text
from tests.text.test_detokenize import TOKENIZERS, text_model

MERGING = merging_text()
TEXTS = st.lists(
    st.sampled_from(["the", " cat", "naïve", "🎭", "\n", "  ", "<|im_end|>", "x"]), max_size=12
).map("".join)


@given(text=TEXTS, data=st.data())
def test_tokens_before_a_place_say_no_more_than_the_text_before_it(
    text: str, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(text)))
    ids, (count,) = MERGING.encode_marked(text, place)
    assert ids == MERGING.encode(text)
    said = [MERGING.vocabulary.bytes_of(token) for token in ids]
    head = text[:place].encode()
    assert head.startswith(b"".join(said[:count]))
    if count < len(ids):
        assert len(b"".join(said[: count + 1])) > len(head)


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_every_kind_of_tokenizer_tells_the_places(name: str) -> None:
    text: TextModel = text_model(TOKENIZERS[name])
    said = "the a b  a"
    ids, counts = text.encode_marked(said, *range(len(said) + 1))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, len(ids))


def test_space_that_no_token_covers_belongs_to_the_word_behind_it() -> None:
    ids, (before, within, behind) = MERGING.encode_marked("the cat", 3, 4, 7)
    assert (before, within, behind) == (1, 1, len(ids))


def test_place_beyond_the_end_is_the_end() -> None:
    ids, (count,) = MERGING.encode_marked("the cat", 99)
    assert count == len(ids)
