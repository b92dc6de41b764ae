"""Token ids by what the tokens say."""

from collections.abc import Iterable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from mlxcel.text.pieces import SPACE_MARK, pieces_of
from mlxcel.text.tokenizer import byte_text_model
from mlxcel.text.vocabulary import Vocabulary


def vocabulary(words: Iterable[str], decoder: decoders.Decoder) -> Vocabulary:
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "?"))
    tokenizer.decoder = decoder
    return Vocabulary(tokenizer, pieces_of(tokenizer))


def byte_level(*words: str) -> Vocabulary:
    return vocabulary(words, decoders.ByteLevel())


def sentencepiece(*words: str) -> Vocabulary:
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return vocabulary(words, decoders.Sequence(steps))


def by_the_library(*words: str) -> Vocabulary:
    return vocabulary(words, decoders.Metaspace())


def test_every_token_that_holds_a_text_is_found() -> None:
    words = ["a", "a:", "Ġ:", "::", "b", "\u010a", "x\u010ay"]
    assert byte_level(*words).ids_containing((":", "\n")) == (1, 2, 3, 5, 6)


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        pytest.param((), (), id="no-texts"),
        pytest.param(("",), (), id="an-empty-text-is-in-none"),
        pytest.param(("ab",), (2,), id="only-as-a-whole"),
        pytest.param(("zz",), (), id="in-none"),
    ],
)
def test_texts(texts: tuple[str, ...], ids: tuple[int, ...]) -> None:
    assert byte_level("a", "b", "cabc").ids_containing(texts) == ids


@pytest.mark.parametrize(
    ("found", "newlines"),
    [
        pytest.param(byte_level("\u010a", "\u010a\u010a", "\u010d\u010a", "x\u010a"), (0, 1, 2)),
        pytest.param(sentencepiece("<0x0A>", "\n", f"{SPACE_MARK}\n", "a"), (0, 1)),
        pytest.param(by_the_library("\n", "a\n", "\r\n"), (0, 2)),
    ],
    ids=["byte-level", "sentencepiece", "by-the-library"],
)
def test_newlines_are_tokens_that_are_nothing_else(
    found: Vocabulary, newlines: tuple[int, ...]
) -> None:
    assert found.newlines == newlines


def test_special_tokens_say_nothing() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a:": 0}, "?"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<:>", special=True)])
    assert Vocabulary(tokenizer, pieces_of(tokenizer)).ids_containing((":",)) == (0,)


def test_size_reaches_the_largest_id() -> None:
    assert byte_text_model().vocabulary.size == 263
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 9}, "?"))
    assert Vocabulary(tokenizer, None).size == 10


def test_a_search_is_done_once() -> None:
    words = byte_text_model().vocabulary
    assert words.ids_containing((":",)) is words.ids_containing((":",))


def with_specials() -> Vocabulary:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "ĠÃ©": 1, "Ã": 2}, "?"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    return Vocabulary(tokenizer, pieces_of(tokenizer))


def test_words_are_looked_up_as_a_whole() -> None:
    found = with_specials()
    assert [word in found for word in ("a", "<s>", "<tool>", "b", "")] == [True] * 3 + [False] * 2
    assert (found.id_of("<s>"), found.id_of("b")) == (3, None)


def test_specials_are_known_by_word_and_by_id() -> None:
    found = with_specials()
    assert found.specials == {"<s>"}
    assert found.specials_among([0, 3, 4, 99]) == {3: "<s>"}


@pytest.mark.parametrize(
    ("token", "said"),
    [
        pytest.param(0, b"a", id="word"),
        pytest.param(1, " \u00e9".encode(), id="alphabet-of-bytes"),
        pytest.param(2, b"\xc3", id="half-a-character"),
        pytest.param(3, b"<s>", id="special"),
        pytest.param(4, b"<tool>", id="added"),
        pytest.param(99, b"", id="unknown"),
    ],
)
def test_bytes_of_one_token(token: int, said: bytes) -> None:
    assert with_specials().bytes_of(token) == said


def test_bytes_of_a_token_only_the_library_can_read() -> None:
    assert by_the_library("\u2581a", "b").bytes_of(1) == b"b"
