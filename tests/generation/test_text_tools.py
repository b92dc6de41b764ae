"""The tokenizer as clients see it."""

import pytest

from mlxcel.core.byte_vocab import BOS, BYTES, END
from mlxcel.core.errors import BadRequest
from mlxcel.generation.text_tools import TextTools
from mlxcel.text.tokenizer import byte_text_model
from tests.text.thinkers import speaker

TOOLS = TextTools(byte_text_model())


@pytest.mark.parametrize(
    ("adds", "parses", "ids"),
    [
        (False, True, [97, END]),
        (True, True, [BOS, 97, END]),
        (False, False, list(b"a<|end|>")),
        (True, False, [BOS, *b"a<|end|>"]),
    ],
)
def test_special_tokens_are_added_and_read_as_asked(
    adds: bool, parses: bool, ids: list[int]
) -> None:
    assert TOOLS.encode("a<|end|>", adds_special=adds, parses_special=parses) == ids


def test_an_empty_text_is_what_the_tokenizer_makes_of_it() -> None:
    assert TOOLS.encode("", adds_special=False, parses_special=True) == []
    assert TOOLS.encode("", adds_special=True, parses_special=True) == [BOS]


def test_pieces_are_bytes_and_special_tokens_their_names() -> None:
    assert TOOLS.piece(0xC3) == b"\xc3"
    assert TOOLS.piece(END) == b"<|end|>"


def test_broken_bytes_are_replaced_and_special_tokens_are_shown() -> None:
    assert TOOLS.decode([*"ä".encode(), 0xC3, END]) == "ä\ufffd<|end|>"
    assert TOOLS.decode([]) == ""


@pytest.mark.parametrize("token", [-1, BYTES + 8, 2**31, 2**40, 2**64])
def test_what_is_no_token_is_refused(token: int) -> None:
    with pytest.raises(BadRequest, match=f"token {token} is not in the vocabulary"):
        TOOLS.piece(token)
    with pytest.raises(BadRequest, match="from 0 to"):
        TOOLS.decode([97, token])


def test_a_word_that_was_added_and_is_not_special_is_a_piece() -> None:
    tools = TextTools(speaker(("<think>",), special=False))
    [token] = tools.encode("<think>", adds_special=False, parses_special=True)
    assert tools.piece(token) == b"<think>"
