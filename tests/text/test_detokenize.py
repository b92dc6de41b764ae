from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from mlxcel.text.bytes import byte_tokenizer
from mlxcel.text.detokenize import ByteDetokenizer, Detokenizer, WindowDetokenizer
from mlxcel.text.tokenizer import TextModel


def sentencepiece(*, strip: bool) -> Tokenizer:
    """In the shape Llama 2 (strip) and Gemma (no strip) come in."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    words += ["\u2581", *"abcdefghijklmnopqrstuvwxyz", "\u2581a", "\u2581the"]
    merges = [("\u2581", "a")]
    vocab = {word: index for index, word in enumerate(words)}
    model = models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "\u2581")]
    tail: list[decoders.Decoder] = []
    if strip:
        steps.insert(0, normalizers.Prepend("\u2581"))
        tail = [decoders.Strip(" ", 1, 0)]
    tokenizer.normalizer = normalizers.Sequence(steps)
    head = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*head, *tail])
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<s>", "</s>")])
    return tokenizer


def metaspace() -> Tokenizer:
    words = ["<unk>", "\u2581", *"abcdefghijklmnopqrstuvwxyz", "\u2581a"]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("\u2581", "a")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def text_model(tokenizer: Tokenizer) -> TextModel:
    return TextModel(tokenizer, eos_ids=(), special_tokens={}, chat_template=None)


TOKENIZERS = {
    "bytes": byte_tokenizer(),
    "sentencepiece-strip": sentencepiece(strip=True),
    "sentencepiece": sentencepiece(strip=False),
    "metaspace": metaspace(),
}
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
WORDS = st.text("abcz ", max_size=40)


def ids_of(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    found = [tokenizer.token_to_id(token) for token in tokens]
    return [token for token in found if token is not None]


def pieces(ids: Sequence[int], cuts: set[int]) -> Iterator[Sequence[int]]:
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < len(ids)), len(ids)]
    return (ids[a:b] for a, b in pairwise(bounds))


def joined(detokenizer: Detokenizer, parts: Iterator[Sequence[int]]) -> str:
    return "".join(detokenizer.feed(part) for part in parts) + detokenizer.flush()


CUTS = st.sets(st.integers(0, 160), max_size=60)


@pytest.mark.parametrize("kind", ["bytes", "sentencepiece-strip", "sentencepiece"])
@given(text=ANY_TEXT, cuts=CUTS)
def test_any_split_joins_to_the_decoded_text(kind: str, text: str, cuts: set[int]) -> None:
    tokenizer = TOKENIZERS[kind]
    detokenizer = text_model(tokenizer).detokenizer()
    assert isinstance(detokenizer, ByteDetokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    assert joined(detokenizer, pieces(ids, cuts)) == whole


@given(text=WORDS, cuts=CUTS)
def test_unknown_decoder_gives_the_decoded_text(text: str, cuts: set[int]) -> None:
    tokenizer = TOKENIZERS["metaspace"]
    detokenizer = text_model(tokenizer).detokenizer()
    assert isinstance(detokenizer, WindowDetokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    assert joined(detokenizer, pieces(ids, cuts)) == whole


@given(ids=st.lists(st.integers(0, 270), max_size=60), cuts=CUTS)
def test_random_bytes_and_markers_decode_as_the_library_does(
    ids: list[int], cuts: set[int]
) -> None:
    tokenizer = TOKENIZERS["bytes"]
    detokenizer = text_model(tokenizer).detokenizer()
    assert joined(detokenizer, pieces(ids, cuts)) == tokenizer.decode(ids)


@given(text=ANY_TEXT)
def test_no_piece_of_whole_text_holds_half_a_character(text: str) -> None:
    detokenizer = text_model(TOKENIZERS["bytes"]).detokenizer()
    said = [detokenizer.feed([byte]) for byte in text.encode()]
    assert [part for part in said if part] == list(text)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(cuts=CUTS)
def test_visible_special_tokens_are_text_in_their_place(kind: str, cuts: set[int]) -> None:
    tokenizer = Tokenizer.from_str(TOKENIZERS[kind].to_str())
    tokenizer.add_special_tokens([AddedToken("<mark>", special=True), AddedToken("<other>")])
    marks = {tokenizer.token_to_id("<mark>"): "<mark>"}
    ids = tokenizer.encode("a<mark>b<other><mark><mark>a", add_special_tokens=False).ids
    detokenizer = text_model(tokenizer).detokenizer(visible=marks)
    said = joined(detokenizer, pieces(ids, cuts)).replace(" ", "")
    assert said == "a<mark>b<mark><mark>a"
    assert "<" not in joined(text_model(tokenizer).detokenizer(), pieces(ids, cuts))


def test_incomplete_character_before_a_visible_token_is_decided() -> None:
    detokenizer = text_model(TOKENIZERS["bytes"]).detokenizer(visible={256: "<|bos|>"})
    assert detokenizer.feed([0x61, 0xF0, 0x9F]) == "a"
    assert detokenizer.feed([256]) == "\ufffd<|bos|>"


def test_incomplete_tail_becomes_one_replacement_mark() -> None:
    detokenizer = text_model(TOKENIZERS["bytes"]).detokenizer()
    assert detokenizer.feed([0x61, 0xF0, 0x9F, 0x8E]) == "a"
    assert detokenizer.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("at_start", "text"),
    [pytest.param(True, "a b", id="answer"), pytest.param(False, " a b", id="continuation")],
)
def test_space_before_the_first_word_is_dropped_at_a_start_only(at_start: bool, text: str) -> None:
    tokenizer = TOKENIZERS["sentencepiece-strip"]
    detokenizer = text_model(tokenizer).detokenizer(at_start=at_start)
    ids = ids_of(tokenizer, "<s>", "\u2581a", "\u2581", "b")
    assert "".join(detokenizer.feed([token]) for token in ids) == text


def test_byte_fallback_tokens_make_one_character() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    detokenizer = text_model(tokenizer).detokenizer()
    ids = ids_of(tokenizer, *(f"<0x{byte:02X}>" for byte in "🎭".encode()))
    assert [detokenizer.feed([token]) for token in ids] == ["", "", "", "🎭"]
