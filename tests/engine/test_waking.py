"""What wakes a lazy grammar, and what it begins with."""

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from mlxcel.core.byte_vocab import END, EOS, VOCAB_SIZE
from mlxcel.core.steering import Constraint, Thinking, Trigger
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.engine.constraint.matcher import Matcher
from mlxcel.engine.constraint.waking import LOOKED_BACK, LOOKED_THROUGH, Piece, Waker
from mlxcel.engine.steering import Steering
from tests.engine.test_constraint_matcher import byte_level, ids, sentencepiece

ENDS = (EOS, END)
THINK, CLOSE = 258, 259
CALL = Trigger(pattern="<call>")


def text_of(token: int) -> bytes:
    return bytes([token]) if token < 256 else f"<|{token}|>".encode()


def heard(waker: Waker, text: bytes) -> tuple[int, bytes] | None:
    """After how many bytes it wakes, and what the grammar begins with."""
    for place, token in enumerate(text):
        if (pieces := waker.hear(token)) is not None:
            return place + 1, b"".join(piece.text for piece in pieces)
    return None


@pytest.mark.parametrize(
    ("trigger", "text", "want"),
    [
        pytest.param(CALL, b"so <call>{", (9, b"<call>"), id="word"),
        pytest.param(CALL, b"so <cal>", None, id="not-there"),
        pytest.param(Trigger(pattern=r"<call>\s*(\{)"), b"<call> {", (8, b"{"), id="group"),
        pytest.param(Trigger(pattern=r"(?:a(x)|b(y))"), b"..by", (4, b"y"), id="group-there-is"),
        pytest.param(Trigger(pattern=r"b()"), b"ab", (2, b""), id="empty-group"),
        pytest.param(Trigger(pattern=r"^b"), b"ab", None, id="from-the-start"),
        pytest.param(Trigger(pattern="ab", is_full=True), b"xab", None, id="not-all"),
        pytest.param(
            Trigger(pattern=r"[\s\S]*?</t>\s*(\{)", is_full=True),
            b"a\n</t> {",
            (8, b"{"),
            id="full",
        ),
        pytest.param(Trigger(pattern="."), "é".encode(), (2, "é".encode()), id="whole-character"),
        pytest.param(Trigger(tokens=(ord("c"),)), b"abc", (3, b"c"), id="token"),
    ],
)
def test_an_expression_wakes(trigger: Trigger, text: bytes, want: tuple[int, bytes] | None) -> None:
    assert heard(Waker([trigger], text_of), text) == want


def test_the_earliest_of_several_beginnings_counts() -> None:
    triggers = [Trigger(pattern="cd"), Trigger(pattern="abcd")]
    assert heard(Waker(triggers, text_of), b"xabcd") == (5, b"abcd")


def test_a_token_wakes_whatever_was_said() -> None:
    waker = Waker([Trigger(tokens=(300,)), CALL], text_of)
    assert waker.hear(ord("<")) is None
    assert waker.hear(300) == [Piece(300, b"<|300|>")]


def test_the_text_of_a_special_token_is_text_too() -> None:
    waker = Waker([Trigger(pattern=r"\|300\|")], text_of)
    assert waker.hear(65) is None
    assert waker.hear(300) == [Piece(None, b"|300|>")]


def test_a_beginning_may_cut_a_token() -> None:
    words = {1: b"say <", 2: b"call", 3: b"> ok"}
    waker = Waker([CALL], words.__getitem__)
    assert [waker.hear(token) for token in (1, 2)] == [None, None]
    assert waker.hear(3) == [Piece(None, b"<"), Piece(2, b"call"), Piece(3, b"> ok")]


def test_what_was_heard_before_a_restart_counts_no_more() -> None:
    waker = Waker([CALL], text_of)
    assert heard(waker, b"<call") is None
    waker.restart()
    assert heard(waker, b"> <call>") == (8, b"<call>")


@pytest.mark.parametrize(
    ("trigger", "most"),
    [
        pytest.param(Trigger(pattern="<[^>]*>"), LOOKED_BACK, id="anywhere"),
        pytest.param(Trigger(pattern="<[^>]*>", is_full=True), LOOKED_THROUGH, id="full"),
    ],
)
def test_how_much_is_looked_at(trigger: Trigger, most: int) -> None:
    for inside, wakes in ((most - 2, True), (most - 1, False)):
        words = {1: b"<", 2: b"a" * inside, 3: b">"}
        waker = Waker([trigger], words.__getitem__)
        assert (waker.hear(1), waker.hear(2)) == (None, None)
        assert (waker.hear(3) is not None) is wakes


def test_an_expression_that_is_made_to_be_slow_is_not() -> None:
    """Backtracking would take forever."""
    waker = Waker([Trigger(pattern="(a|aa|a*)*b")], text_of)
    began_s = time.perf_counter()
    assert heard(waker, b"a" * 300 + b"b") is not None
    assert time.perf_counter() - began_s < 1


@given(
    words=st.lists(st.text("ab<", min_size=1, max_size=4), max_size=8),
    word=st.text("ab<", min_size=1, max_size=3),
)
def test_a_word_is_found_in_whatever_tokens_it_comes(words: list[str], word: str) -> None:
    waker = Waker([Trigger(pattern=word)], lambda token: words[token].encode())
    for place in range(len(words)):
        pieces = waker.hear(place)
        said = "".join(words[: place + 1])
        assert (pieces is not None) is (word in said)
        if pieces is not None:
            assert b"".join(piece.text for piece in pieces).decode() == said[said.index(word) :]
            return


# Through tokenizers and grammars


@pytest.fixture(scope="module")
def compiler(tiny: Path) -> Compiler:
    return Compiler(tiny / "tokenizer.json", VOCAB_SIZE)


def lazy(compiler: Compiler, grammar: str, *triggers: Trigger) -> Matcher:
    return compiler.matcher(Constraint(grammar=grammar, triggers=triggers), ENDS)


def prepending() -> Tokenizer:
    """Puts a blank before each text."""
    tokenizer = sentencepiece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [
        pytest.param(byte_level(), id="byte-level"),
        pytest.param(sentencepiece(), id="sentencepiece"),
        pytest.param(prepending(), id="prepending"),
    ],
)
@pytest.mark.parametrize("begin", ['{"', 'me"', "größe", "😀", '"'])
def test_a_beginning_is_followed_in_the_tokens_of_a_model(
    tokenizer: Tokenizer, begin: str, tmp_path: Path
) -> None:
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    compiler = Compiler(tmp_path / "tokenizer.json", tokenizer.get_vocab_size())
    text = 'so {"name": "größe 数 😀", "n": [10, 20]}'
    rest = text[text.index(begin) :]
    constraint = Constraint(
        grammar=f"start: {json.dumps(rest, ensure_ascii=False)}",
        triggers=(Trigger(pattern=begin),),
    )
    steering = Steering(None, compiler.matcher(constraint, ()), after_thinking=False, eos_ids=())
    held = 0
    for token in tokenizer.encode(text, add_special_tokens=False).ids:
        words = steering.allowed()
        held += words is not None
        assert words is None or token in ids(words)
        steering.accept(token)
    assert held > 0
    assert steering.is_complete


def said(steering: Steering, tokens: Sequence[int]) -> None:
    for token in tokens:
        steering.accept(token)


def test_a_lazy_row_is_free_until_then(compiler: Compiler) -> None:
    steering = Steering(
        None, lazy(compiler, 'start: "<call>" /[0-9]+/ "."', CALL), after_thinking=False,
        eos_ids=ENDS,
    )  # fmt: skip
    assert (steering.allowed(), steering.waiting, steering.is_complete) == (None, None, False)
    assert steering.needs_tokens
    said(steering, b"so <call")
    assert steering.allowed() is None
    said(steering, b">")
    words = steering.allowed()
    assert words is not None
    assert ids(words) == {*b"0123456789"}
    said(steering, b"7.")
    assert steering.is_complete


def test_a_special_token_that_wakes_is_followed_as_token_or_as_text(compiler: Compiler) -> None:
    for grammar in ('start: <|tool|> "a"', 'start: "<|tool|>a"'):
        matcher = lazy(compiler, grammar, Trigger(tokens=(261,)))
        steering = Steering(None, matcher, after_thinking=False, eos_ids=ENDS)
        said(steering, [*b"hm", 261])
        words = steering.allowed()
        assert words is not None
        assert ids(words) == {*b"a"}


def test_a_grammar_that_is_broken_already_lets_the_answer_be(
    compiler: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    for grammar in ('start: "{"', 'start: "<call>" <|end|> "a"'):
        matcher = lazy(compiler, grammar, CALL)
        steering = Steering(None, matcher, after_thinking=False, eos_ids=ENDS)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "mlxcel.engine.steering"):
            said(steering, b"so <call> <call>")
        assert steering.allowed() is None
        assert not steering.needs_tokens
        assert not steering.is_complete
        assert len(caplog.records) == 1


def block(budget: int = -1, *, is_open: bool = False) -> Thinking:
    return Thinking(open_ids=(THINK,), close_ids=(CLOSE,), budget=budget, is_open=is_open)


def test_thoughts_are_not_heard_where_the_grammar_waits_for_their_end(compiler: Compiler) -> None:
    for is_open in (False, True):
        matcher = lazy(compiler, 'start: "<call>a"', CALL)
        steering = Steering(block(is_open=is_open), matcher, after_thinking=True, eos_ids=ENDS)
        said(steering, [*([] if is_open else [THINK]), *b"<call>", CLOSE, *b"> <call"])
        assert steering.allowed() is None
        said(steering, b">")
        words = steering.allowed()
        assert words is not None
        assert ids(words) == {*b"a"}


def test_what_is_said_before_a_block_has_no_end_behind_it(compiler: Compiler) -> None:
    matcher = lazy(compiler, 'start: "<call>a"', CALL)
    steering = Steering(block(), matcher, after_thinking=True, eos_ids=ENDS)
    said(steering, [*b"<ca", THINK, *b"hm", CLOSE, *b"ll>"])
    assert steering.allowed() is None


def test_thoughts_are_heard_else(compiler: Compiler) -> None:
    matcher = lazy(compiler, 'start: "<call>a"', CALL)
    steering = Steering(block(99), matcher, after_thinking=False, eos_ids=ENDS)
    said(steering, [THINK, *b"<call>"])
    words = steering.allowed()
    assert words is not None
    assert ids(words) == {*b"a"}


def test_an_answer_without_thoughts_is_heard(compiler: Compiler) -> None:
    matcher = lazy(compiler, 'start: "<call>a"', CALL)
    steering = Steering(block(), matcher, after_thinking=True, eos_ids=ENDS)
    said(steering, b"<call>")
    assert steering.allowed() is not None


def test_a_budget_holds_while_a_grammar_sleeps(compiler: Compiler) -> None:
    for after_thinking in (True, False):
        matcher = lazy(compiler, 'start: "<call>a"', CALL)
        steering = Steering(block(2), matcher, after_thinking=after_thinking, eos_ids=ENDS)
        said(steering, [THINK, *b"ab"])
        assert steering.forced() == CLOSE


def test_a_trigger_in_what_a_budget_forces_ends_the_forcing(compiler: Compiler) -> None:
    matcher = lazy(compiler, 'start: "<call>a"', CALL)
    closing = Thinking(open_ids=(THINK,), close_ids=(*b"<call>", 1), budget=0, is_open=True)
    steering = Steering(closing, matcher, after_thinking=False, eos_ids=ENDS)
    said(steering, b"<call>")
    assert (steering.forced(), steering.is_forcing) == (None, False)
    assert steering.allowed() is not None
