"""Grammars held against real kinds of tokenizers: what may follow, and when an answer ends."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from mlxcel.core.byte_vocab import END, EOS, VOCAB_SIZE
from mlxcel.core.errors import BadRequest, GenerationFailed, MlxcelError
from mlxcel.core.steering import Constraint
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.engine.constraint.matcher import Matcher, Words

ENDS = (EOS, END)


@pytest.fixture(scope="module")
def compiler(tiny: Path) -> Compiler:
    return Compiler(tiny / "tokenizer.json", VOCAB_SIZE)


def ids(words: Words) -> set[int]:
    return {t for t in range(32 * len(words)) if words[t // 32] >> (t % 32) & 1}


def lark(compiler: Compiler, grammar: str, ends: tuple[int, ...] = ENDS) -> Matcher:
    return compiler.matcher(Constraint(grammar=grammar), ends)


def say(matcher: Matcher, tokens: Sequence[int]) -> None:
    for token in tokens:
        matcher.accept(token)


def test_only_what_the_grammar_allows_may_follow(compiler: Compiler) -> None:
    matcher = lark(compiler, "start: /[ab]c/")
    assert ids(matcher.allowed()) == {*b"ab"}
    say(matcher, b"a")
    assert ids(matcher.allowed()) == {*b"c"}


def test_ends_may_follow_a_whole_answer_only(compiler: Compiler) -> None:
    matcher = lark(compiler, "start: /ab*/")
    assert not matcher.is_accepting
    say(matcher, b"a")
    assert matcher.is_accepting
    assert ids(matcher.allowed()) == {*b"b", *ENDS}
    assert not matcher.is_complete
    matcher.accept(END)
    assert matcher.is_complete


def test_complete_once_nothing_may_follow(compiler: Compiler) -> None:
    matcher = lark(compiler, 'start: "a" /[0-9]{2}/')
    say(matcher, b"a4")
    assert (matcher.is_accepting, matcher.is_complete) == (False, False)
    say(matcher, b"2")
    assert (matcher.is_accepting, matcher.is_complete) == (True, True)
    assert ids(matcher.allowed()) == {*ENDS}


def test_complete_where_the_rest_has_no_logits(tiny: Path) -> None:
    compiler = Compiler(tiny / "tokenizer.json", 100)
    matcher = lark(compiler, 'start: "a" "x"?', ())
    say(matcher, b"a")
    assert not matcher.allowed().any()
    assert matcher.is_complete


def test_ends_are_those_of_the_request(compiler: Compiler) -> None:
    matcher = lark(compiler, "start: /a./", (EOS,))
    say(matcher, b"a ")
    assert ids(matcher.allowed()) == {EOS}


def test_an_end_that_is_plain_text_is_no_text(compiler: Compiler) -> None:
    # A checkpoint may end its answers with a token like any other.
    matcher = lark(compiler, "start: /[a-c]{2}/", (ord("b"),))
    assert ids(matcher.allowed()) == {*b"ac"}


def test_no_special_token_is_text(compiler: Compiler) -> None:
    matcher = lark(compiler, r"start: /(?s:.*)/")
    assert {t for t in ids(matcher.allowed()) if t > 255} == {*ENDS}
    assert 0 in ids(matcher.allowed())


def test_a_token_that_cannot_follow_fails_its_row(
    compiler: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    matcher = lark(compiler, "start: /secret/")
    say(matcher, b"sec")
    with caplog.at_level(logging.WARNING), pytest.raises(GenerationFailed) as error:
        matcher.accept(ord("x"))
    assert "secret" not in error.value.message
    with pytest.raises(GenerationFailed):
        matcher.allowed()


def test_a_place_with_too_many_ways_on_is_the_grammars_fault(compiler: Compiler) -> None:
    # Character by character, as GBNF becomes it: all alternatives run beside each other.
    ways = " | ".join(f'"a" "{n}" "b"' for n in range(3000))
    matcher = lark(compiler, f"start: {ways}")
    with pytest.raises(BadRequest, match=r"3000 ways at one place .* at most 2000"):
        matcher.accept(ord("a"))


def test_a_grammar_that_holds_up_everybody_ends_its_row(compiler: Compiler) -> None:
    matcher = lark(compiler, "start: /[ab]*/")
    matcher.took(0.09)
    matcher.took(0.9)
    matcher.allowed()
    matcher.took(0.2)
    with pytest.raises(BadRequest, match="takes too long to follow"):
        matcher.allowed()


def test_each_answer_has_a_state_of_its_own(compiler: Compiler) -> None:
    first, second = (lark(compiler, "start: /ab/") for _ in range(2))
    say(first, b"a")
    assert ids(first.allowed()) == {*b"b"}
    assert ids(second.allowed()) == {*b"a"}


def test_grammar_beyond_the_limits_is_told_in_general_words(
    compiler: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(BadRequest) as error:
        lark(compiler, "start: nothing")
    message = "the schema or grammar is too complex for constrained output"
    assert (error.value.message, error.value.status) == (message, 400)
    assert "nothing" in caplog.text


def test_more_grammars_than_are_kept(compiler: Compiler) -> None:
    for number in range(40):
        say(lark(compiler, f'start: "n{number}"'), f"n{number}".encode())
    assert ids(lark(compiler, 'start: "n0"').allowed()) == {*b"n"}


@pytest.mark.parametrize("name", ["absent", "broken", "foreign"])
def test_tokenizer_that_cannot_serve_is_told_without_details(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if name == "broken":
        path.write_text("{}")
    elif name == "foreign":
        words = models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")
        Tokenizer(words).save(str(path))
    compiler = Compiler(path, 8)
    compiler.start()
    with pytest.raises(MlxcelError) as error:
        lark(compiler, 'start: "a"')
    assert error.value.status == 500
    assert str(tmp_path) not in error.value.message


def test_reading_the_tokenizer_ahead_gives_the_same(tiny: Path) -> None:
    compiler = Compiler(tiny / "tokenizer.json", VOCAB_SIZE)
    compiler.start()
    assert ids(lark(compiler, 'start: "a"').allowed()) == {*b"a"}


@pytest.mark.parametrize("size", [257, 264, 300, 512], ids=["fewer", "exact", "more", "words"])
def test_masks_are_as_wide_as_the_logits(tiny: Path, size: int) -> None:
    compiler = Compiler(tiny / "tokenizer.json", size)
    matcher = lark(compiler, 'start: /[a-b]?/ "c"?')
    assert matcher.allowed().shape == (-(-size // 32),)
    assert ids(matcher.allowed()) == {*b"abc", *(end for end in ENDS if end < size)}
    assert ids(matcher.everything()) == set(range(size))


# Tokenizers of real checkpoints

TEXT = '{"name": "größe 数 😀", "n": [10, 20]}'
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "n": {}}}
GRAMMAR = f"start: %json {json.dumps(SCHEMA)}"


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT, '{"name": "abc", "n": 1}'] * 4, trainer)
    return tokenizer


def sentencepiece() -> Tokenizer:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = sorted(set("▁" + TEXT.replace(" ", "▁")))
    merges = [("n", "a"), ("m", "e"), ("na", "me"), (":", "▁"), ('"', ":")]
    vocab = {piece: n for n, piece in enumerate(pieces + letters + [a + b for a, b in merges])}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "end"),
    [
        pytest.param(byte_level(), "<|end|>", id="byte-level"),
        pytest.param(sentencepiece(), "</s>", id="sentencepiece"),
    ],
)
def test_tokens_of_several_bytes_are_followed(
    tokenizer: Tokenizer, end: str, tmp_path: Path
) -> None:
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ends = (tokenizer.get_vocab()[end],)
    compiler = Compiler(tmp_path / "tokenizer.json", tokenizer.get_vocab_size() + 5)
    matcher = lark(compiler, GRAMMAR, ends)
    tokens = tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert len(tokens) < len(TEXT.encode())
    for token in tokens:
        assert matcher.allows(token)
        assert not matcher.allows(ends[0])
        matcher.accept(token)
    assert matcher.is_complete
    assert ids(matcher.allowed()) == {*ends}
