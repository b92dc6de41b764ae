import pytest

from mlxcel.core import byte_vocab
from mlxcel.text.bytes import BYTE_OF_CHAR, CHAR_OF_BYTE
from mlxcel.text.tokenizer import byte_text_model

TEXT = byte_text_model()


def test_ids_of_text_are_its_bytes() -> None:
    assert TEXT.encode("aé🎭") == list("aé🎭".encode())


@pytest.mark.parametrize(("marker", "token"), byte_vocab.SPECIALS.items(), ids=str)
def test_marker_is_one_token_with_the_shared_id(marker: str, token: int) -> None:
    assert TEXT.encode(f"x{marker}y") == [ord("x"), token, ord("y")]
    assert TEXT.detokenizer().feed([token, ord("y")]) == "y"


def test_bos_is_left_to_the_template() -> None:
    assert TEXT.encode("a") == [97]


def test_alphabet_covers_every_byte_once() -> None:
    assert [BYTE_OF_CHAR[CHAR_OF_BYTE[b]] for b in range(256)] == list(range(256))


def test_text_comes_back_from_its_ids() -> None:
    assert TEXT.detokenizer().feed("aé🎭".encode()) == "aé🎭"


def test_both_ends_of_turn_end_an_answer() -> None:
    assert set(TEXT.eos_ids) == {byte_vocab.EOS, byte_vocab.END}
