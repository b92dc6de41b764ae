"""Which tokens a language owns, and the index that is kept of it."""

import math
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from mlxcel.core.settings import LanguageBias
from mlxcel.link.messages import pack_bias
from mlxcel.text.bytes import CHAR_OF_BYTE
from mlxcel.text.language import index
from mlxcel.text.language.index import FORCED, fragments, language_bias, letters_of_start, prepare
from mlxcel.text.language.kept import FOLDER, TOKEN
from mlxcel.text.language.scripts import (
    ARABIC,
    CYRILLIC,
    DEVANAGARI,
    GREEK,
    HAN,
    HANGUL,
    HEBREW,
    HIRAGANA,
    KATAKANA,
    LATIN,
    OTHER,
    THAI,
    Marks,
    letters_of,
    marks_of,
)
from mlxcel.text.tokenizer import TextModel, byte_text_model


def model(
    *words: str | bytes, special: tuple[str, ...] = (), eos: tuple[int, ...] = ()
) -> TextModel:
    """A byte-level vocabulary of these tokens, in their order."""
    spelled = [w.encode() if isinstance(w, str) else w for w in words]
    vocab = {"".join(CHAR_OF_BYTE[b] for b in word): n for n, word in enumerate(spelled)}
    tokenizer = Tokenizer(models.WordLevel(vocab, "?"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    return TextModel(tokenizer, eos_ids=eos, special_tokens={}, chat_template=None)


def bias(*pairs: tuple[str, float], **exceptions: bool) -> LanguageBias:
    return LanguageBias(bias=pairs, **exceptions)


def biased(text: TextModel, wanted: LanguageBias | None) -> dict[int, float]:
    packed = language_bias(text, wanted, None)
    return dict(struct.iter_unpack("<if", packed))


def owned(text: TextModel, code: str, **exceptions: bool) -> set[int]:
    return set(biased(text, bias((code, -1.0), **exceptions)))


WORDS = {
    "ja": ["ひらがな", "カタカナ", "ー", "ｶﾅ", "日本", "々"],
    "zh": ["中文", "豈", "𠀀"],
    "ko": ["한국어", "ㄱ"],
    "en": ["word", " Word", "déjà", "Ａ"],
    "ru": [" слово", "Ё"],
    "ar": ["كلمة", " َ"],
    "th": ["คำ", "ี"],
    "hi": ["शब्द", "ि"],
    "he": ["מילה", "שׁ"],
    "el": ["λέξη", "ἀ"],
}


@pytest.mark.parametrize(("code", "words"), WORDS.items(), ids=WORDS.keys())
def test_a_language_owns_the_words_of_its_scripts(code: str, words: list[str]) -> None:
    assert owned(model(*words), code) == set(range(len(words)))


@pytest.mark.parametrize("code", WORDS)
def test_a_language_leaves_what_others_are_written_in(code: str) -> None:
    foreign = [c for c in WORDS if c != code and {c, code} != {"ja", "zh"}]
    others = [word for c in foreign for word in WORDS[c]]
    assert owned(model(*others, "ա", "ক", "12", "!?", " ", "😀", "µ"), code) == set()


def test_the_first_language_of_the_list_owns_a_token() -> None:
    text = model("日本", "ひ", "中a")
    assert biased(text, bias(("ja", -5), ("zh", -math.inf))) == {0: -5, 1: -5}
    assert biased(text, bias(("zh", -math.inf), ("ja", -5))) == {0: -math.inf, 1: -5}


def test_a_bias_of_zero_claims_too() -> None:
    assert biased(model("日本", "ひ"), bias(("zh", 0), ("ja", -5))) == {1: -5}


def test_conservative_wants_all_letters_and_strict_one() -> None:
    text = model("λa", "λ1!", "a", "λক")
    assert owned(text, "el") == {1}
    assert owned(text, "el", is_strict=True) == {0, 1, 3}


@pytest.mark.parametrize(
    ("exception", "code", "ids"),
    [
        pytest.param("include_numeric", "hi", {0, 1}, id="numerals-of-the-script"),
        pytest.param("include_punctuation", "hi", {0, 2}, id="punctuation-of-the-script"),
        pytest.param("include_special", "en", {3, 5}, id="special-tokens"),
        pytest.param("include_byte_fragments", "hi", {0, 4}, id="parts-of-characters"),
    ],
)
def test_exceptions_widen_the_set(exception: str, code: str, ids: set[int]) -> None:
    text = model("श", "१2", "।", "a", b" \xe0\xa4", special=("<|start|>",))
    assert owned(text, code) == ids - {1, 2, 4, 5}
    assert owned(text, code, **{exception: True}) == ids


def test_letters_decide_where_there_are_some() -> None:
    text = model("a。", "。")
    assert owned(text, "en", include_punctuation=True) == {0}
    assert owned(text, "zh", include_punctuation=True) == {1}


def test_ends_of_text_are_spared_though_they_are_no_special_tokens() -> None:
    assert owned(model("end", "a", eos=(0, 99)), "en") == {1}


@pytest.mark.parametrize(
    ("part", "scripts"),
    [
        pytest.param(b"\xe3\x81", HIRAGANA, id="two-of-three-bytes"),
        pytest.param(b"\xe3\x82", HIRAGANA | KATAKANA, id="on-a-border"),
        pytest.param(b"\xe4", HAN, id="han"),
        pytest.param(b"\xeb", HANGUL, id="hangul"),
        pytest.param(b"\xed", HANGUL, id="hangul-beside-surrogates"),
        pytest.param(b"\xd0", CYRILLIC, id="cyrillic"),
        pytest.param(b"\xcf", GREEK, id="greek"),
        pytest.param(b"\xd7", HEBREW, id="hebrew"),
        pytest.param(b"\xd9", ARABIC, id="arabic"),
        pytest.param(b"\xc3", LATIN, id="latin"),
        pytest.param(b"\xe0\xa4", DEVANAGARI, id="devanagari"),
        pytest.param(b"\xe0\xb8", THAI, id="thai"),
        pytest.param(b"\xf0\xa0", HAN, id="beyond-the-first-plane"),
        pytest.param(b"\xe0\xa6", OTHER, id="a-script-of-no-language"),
        pytest.param(b"\xe0\x80", 0, id="overlong"),
        pytest.param(b"\xf1", 0, id="nothing-assigned"),
        pytest.param(b"\xc0", 0, id="no-start-byte"),
        pytest.param(b"\xff", 0, id="never-in-utf-8"),
    ],
)
def test_a_start_byte_stands_for_what_it_may_become(part: bytes, scripts: int) -> None:
    assert letters_of_start(part) == scripts


@given(st.characters(min_codepoint=0x80, exclude_categories=["Cs"]), st.data())
def test_a_cut_character_may_become_itself(char: str, data: st.DataObject) -> None:
    whole = char.encode()
    cut = data.draw(st.integers(1, len(whole) - 1))
    if len(whole) == 4 and cut == 1:
        return  # up to 262,144 characters: slow, and tried above
    assert letters_of_start(whole[:cut]) & letters_of([ord(char)]) == letters_of([ord(char)])


def test_fragments_are_tokens_that_are_no_whole_text() -> None:
    words = [b"\xe3\x81", b"a\xe3", b"\x81", b"\x81b", "ひ".encode(), b"a"]
    assert fragments(model(*words), None) == (0, 1, 2, 3)
    assert fragments(byte_text_model(), None) == tuple(range(0x80, 0x100))


def test_fragments_are_found_where_only_the_library_decodes() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "\ufffd": 1, "ひ": 2}, "?"))
    tokenizer.decoder = decoders.Metaspace()
    text = TextModel(tokenizer, eos_ids=(), special_tokens={}, chat_template=None)
    assert fragments(text, None) == (1,)
    assert owned(text, "ja") == {2}


def test_a_fragment_beside_letters_counts_with_them() -> None:
    text = model(b"a\xe4", b"\xe6\x97\xa5\xe4", b"\x81")
    assert owned(text, "zh", include_byte_fragments=True) == {1}
    assert owned(text, "zh", include_byte_fragments=True, is_strict=True) == {0, 1}


def test_the_layout_is_that_of_the_link() -> None:
    text = model("a", "b", "ж")
    packed = language_bias(text, bias(("ru", -2.5), ("en", -math.inf)), None)
    assert packed == pack_bias([(0, -math.inf), (1, -math.inf), (2, -2.5)])


def test_tokens_without_logits_are_left_out() -> None:
    text, wanted = model("a", "1", "b", "c"), bias(("en", -1))
    assert language_bias(text, wanted, None, vocab_size=3) == pack_bias([(0, -1.0), (2, -1.0)])
    assert language_bias(text, wanted, None, vocab_size=99) == language_bias(text, wanted, None)


def test_off_is_nothing() -> None:
    assert language_bias(model("a"), None, None) == b""
    assert language_bias(model("a"), bias(), None) == b""
    assert language_bias(model("1"), bias(("en", -1)), None) == b""


def test_plus_infinity_keeps_the_differences_of_logits() -> None:
    assert biased(model("a"), bias(("en", math.inf))) == {0: FORCED}


def test_a_number_beyond_float32_bans() -> None:
    assert biased(model("a"), bias(("en", -1e300))) == {0: -math.inf}


def test_the_same_bias_is_computed_once() -> None:
    text, wanted = model("a"), bias(("en", -1))
    assert language_bias(text, wanted, None) is language_bias(text, bias(("en", -1)), None)


def stored(cache: Path) -> Path:
    (path,) = (cache / FOLDER).iterdir()
    return path


class Counted:
    """Classifies, and counts how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self._real = index._classified
        monkeypatch.setattr(index, "_classified", self)

    def __call__(self, text: TextModel) -> object:
        self.times += 1
        time.sleep(0.02)  # long enough for another thread to come too
        return self._real(text)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_an_index_is_kept_for_the_next_start(tmp_path: Path, counted: Counted) -> None:
    first = language_bias(model("a", "ж"), bias(("ru", -1)), tmp_path)
    assert language_bias(model("a", "ж"), bias(("ru", -1)), tmp_path) == first != b""
    assert counted.times == 1


def test_another_vocabulary_has_an_index_of_its_own(tmp_path: Path) -> None:
    language_bias(model("a", "ж"), bias(("ru", -1)), tmp_path)
    assert biased(model("ж", "a"), bias(("ru", -1))) == {0: -1}
    language_bias(model("ж", "a"), bias(("ru", -1)), tmp_path)
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:-1], id="cut"),
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="a-bit"),
        pytest.param(lambda data: b"{}" * 100, id="something-else"),
    ],
)
def test_a_damaged_file_is_built_again(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    first = language_bias(model("a", "ж"), bias(("ru", -1)), tmp_path)
    path = stored(tmp_path)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert language_bias(model("a", "ж"), bias(("ru", -1)), tmp_path) == first
    assert path.read_bytes() == good


def test_rebuild_passes_over_a_stored_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, wanted = model("a", "ж"), bias(("ru", -1))
    with monkeypatch.context() as patched:
        patched.setattr(index, "_classified", lambda text: np.zeros(2, TOKEN))
        assert language_bias(text, wanted, tmp_path) == b""
    prepare(text, tmp_path)
    assert language_bias(text, wanted, tmp_path) == b""
    prepare(text, tmp_path, rebuild=True)
    assert language_bias(text, wanted, tmp_path) == pack_bias([(1, -1.0)])
    assert language_bias(model("a", "ж"), wanted, tmp_path) == pack_bias([(1, -1.0)])


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file is in the way")
    assert language_bias(model("a"), bias(("en", -1)), tmp_path) == pack_bias([(0, -1.0)])


def test_one_thread_classifies_and_the_others_wait(counted: Counted) -> None:
    text, found = byte_text_model(), []
    wanted = bias(("en", -1))
    threads = [
        threading.Thread(target=lambda: found.append(language_bias(text, wanted, None)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.times == 1
    assert len(found) == 8
    assert len(set(found)) == 1


def test_marks_tell_kinds_apart() -> None:
    assert marks_of("a١،٪ख") == Marks(
        letters=LATIN | DEVANAGARI, numerals=ARABIC, punctuation=ARABIC
    )


def test_ranges_do_not_overlap() -> None:
    from mlxcel.text.language.scripts import _RANGES

    ends = [end for _, end, _ in _RANGES]
    starts = [start for start, _, _ in _RANGES]
    assert all(end < start for end, start in zip(ends, starts[1:], strict=False))
    assert all(start <= end for start, end in zip(starts, ends, strict=True))
