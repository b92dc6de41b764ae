"""Rows under constraints and budgets of thinking, through the worker.

Most of it runs on a model that says the next byte, so that every text is known beforehand.
"""

import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.byte_vocab import END, EOS
from mlxcel.core.events import FinishReason
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.steering import Constraint, Thinking
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.generation.structured import compiled
from mlxcel.link.messages import (
    Cancel,
    RowAccepted,
    RowFailed,
    RowStarted,
    RowTokens,
    Submit,
)
from tests.engine.driver import Driver, submit
from tests.tiny.counting import CLOSE, THINK, build_counting_checkpoint

ENDS = (EOS, END)
SAMPLED = {"temperature": 1.0, "top_p": 0.95, "seed": 7}
BOTH = pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_counting_checkpoint(tmp_path_factory.mktemp("counting") / "tiny-counting")


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(7 * i * (seed + 3) + seed) % 256 for i in range(length)]


@lru_cache
def _solo(folder: Path) -> Driver:
    return Driver(folder, no_batch=True, lookahead=False)


def alone(folder: Path, request: Submit) -> list[int]:
    driver = _solo(folder)
    driver.frames.clear()
    driver.run(request)
    return driver.tokens(request.id)


def serve(driver: Driver, *requests: Submit) -> None:
    """Run to the end, waiting for constraints to be compiled."""
    until_answered(driver, *requests)
    driver.run()


def until_answered(driver: Driver, *requests: Submit) -> None:
    driver.tick(*requests)
    until_s = time.monotonic() + 30
    while not all(driver.events(request.id) for request in requests):
        assert time.monotonic() < until_s, "a constraint is still being compiled"
        time.sleep(0.002)
        driver.tick()


def flags(driver: Driver, name: str) -> str:
    """One sign for each token said: `!` where it was told as forced."""
    told = [event for event in driver.events(name) if isinstance(event, RowTokens)]
    return "".join(("!" if event.is_forced else ".") * len(event.ids) for event in told)


def json_schema(source: str) -> str:
    return compiled(OutputFormat(kind=OutputKind.JSON_SCHEMA, source=source))


def const(text: str) -> Constraint:
    return Constraint(grammar=json_schema(f'{{"const": "{text}"}}'))


COLOUR = Constraint(grammar=json_schema('{"enum": ["red", "green", "blue"]}'))
COLOURS = {b'"red"', b'"green"', b'"blue"'}


# Constraints.


@BOTH
@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
def test_constrained_row_says_exactly_what_it_must_beside_free_rows(
    tiny: Path, sampling: dict[str, Any], mixed: bool
) -> None:
    free = [submit(f"f{i}", prompt(9 + i, i), 20, **sampling) for i in range(2)]
    bound = {
        "const": (const("yes"), b'"yes"'),
        "number": (Constraint(grammar=json_schema('{"const": -42}')), b"-42"),
        "regex": (
            Constraint(grammar=compiled(OutputFormat(kind=OutputKind.REGEX, source="ab{3}c"))),
            b"abbbc",
        ),
    }
    driver = Driver(tiny, parallel=5, mixed_step=mixed)
    driver.tick(*free)
    rows = [
        submit(name, prompt(20, i), 20, eos=ENDS, constraint=constraint, **sampling)
        for i, (name, (constraint, _)) in enumerate(bound.items())
    ]
    serve(driver, *rows)
    for name, (_, text) in bound.items():
        assert bytes(driver.tokens(name)) == text
        assert driver.reason(name) is FinishReason.STRUCTURE
        assert driver.finish(name).usage.completion_tokens == len(text)
        assert flags(driver, name) == "." * len(text)
    for row in free:
        assert driver.tokens(row.id) == alone(tiny, row)
    assert driver.stats.kv_blocks == 0


def test_choices_are_held_to_the_constraint_each(tiny: Path) -> None:
    driver = Driver(tiny, parallel=2)
    request = submit("n", prompt(20), 20, eos=ENDS, choices=3, constraint=COLOUR, temperature=1.0)
    serve(driver, request)
    for choice in range(3):
        assert bytes(driver.tokens("n", choice)) in COLOURS
        assert driver.reason("n", choice) is FinishReason.STRUCTURE


def test_first_token_is_held_to_the_constraint_whatever_is_likely(tiny: Path) -> None:
    favourite = {"bias": ((ord("Z"), 50.0), (ord("g"), 20.0))}
    driver = Driver(tiny)
    serve(driver, submit("c", prompt(20), 20, eos=ENDS, constraint=COLOUR, **favourite))
    assert bytes(driver.tokens("c")) == b'"green"'


def test_end_of_text_ends_a_whole_answer_only(counting: Path) -> None:
    """The model wants to end at once, and may from the second `b` on."""
    grammar = Constraint(grammar="start: /\\.b\\.+/")
    driver = Driver(counting)
    serve(driver, submit("c", list(b"x."), 20, eos=ENDS, constraint=grammar))
    assert bytes(driver.tokens("c")) == b".b."
    assert driver.reason("c") is FinishReason.EOS


@pytest.mark.parametrize(
    ("max_tokens", "reason"), [(4, FinishReason.LENGTH), (5, FinishReason.STRUCTURE)]
)
def test_structure_comes_before_the_limit(
    tiny: Path, max_tokens: int, reason: FinishReason
) -> None:
    driver = Driver(tiny)
    serve(driver, submit("c", prompt(9), max_tokens, eos=ENDS, constraint=const("yes")))
    assert bytes(driver.tokens("c")) == b'"yes"'[:max_tokens]
    assert driver.reason("c") is reason


def test_request_that_is_cancelled_while_it_compiles_is_never_heard_of(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, compile_ = threading.Event(), Compiler.matcher

    def slow(*args: Any) -> Any:
        assert go_on.wait(30)
        return compile_(*args)

    monkeypatch.setattr(Compiler, "matcher", slow)
    other = submit("other", prompt(9), 12)
    driver = Driver(tiny)
    gone, stays = (
        submit(name, prompt(20), 20, eos=ENDS, constraint=const("yes"))
        for name in ("gone", "stays")
    )
    driver.tick(gone, stays, other)
    while len(driver.tokens("other")) < 12:
        driver.tick()  # which no compilation holds up
    driver.tick(Cancel(id="gone"))
    go_on.set()
    until_answered(driver, stays)
    driver.run()
    assert driver.events("gone") == []
    assert bytes(driver.tokens("stays")) == b'"yes"'
    assert (driver.stats.started, driver.stats.completed, driver.stats.kv_blocks) == (2, 2, 0)


def test_requests_that_compile_count_for_the_queue(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, compile_ = threading.Event(), Compiler.matcher

    def slow(*args: Any) -> Any:
        assert go_on.wait(30)
        return compile_(*args)

    monkeypatch.setattr(Compiler, "matcher", slow)
    driver = Driver(tiny, parallel=1, max_queue_depth=1)
    rows = [submit(f"c{i}", prompt(9), 20, eos=ENDS, constraint=const("yes")) for i in range(3)]
    driver.tick(*rows)
    assert [event for row in rows for event in driver.events(row.id)] == [driver.failure("c2")]
    assert driver.failure("c2").error.code == "server_busy"
    go_on.set()
    until_answered(driver, *rows[:2])
    driver.run()
    assert [bytes(driver.tokens(row.id)) for row in rows] == [b'"yes"', b'"yes"', b""]


def test_grammar_that_cannot_be_compiled_is_refused_and_holds_nothing(tiny: Path) -> None:
    driver = Driver(tiny)
    busy = submit("busy", prompt(9), 12)
    bad = submit("bad", prompt(90), 20, eos=ENDS, constraint=Constraint(grammar="start: ("))
    driver.tick(busy)
    held = driver.stats.kv_blocks
    until_answered(driver, bad)
    assert driver.stats.kv_blocks in (0, held)
    driver.run()
    error = driver.failure("bad").error
    assert (error.code, error.status) == ("invalid_request", 400)
    assert error.message == "the schema or grammar is too complex for constrained output"
    assert driver.events("bad") == [RowFailed("bad", error)]
    assert driver.stats.started == 1
    assert driver.tokens("busy") == alone(tiny, busy)


def test_row_in_a_dead_end_fails_alone_and_says_why(tiny: Path) -> None:
    """An end of text in the middle of an answer can never be said."""
    stuck = Constraint(grammar='start: "ab" <|end|> "c"')
    free = submit("free", prompt(9), 20)
    rows = [
        submit("stuck", prompt(20), 20, eos=ENDS, constraint=stuck),
        submit("fine", prompt(20), 20, eos=ENDS, constraint=const("yes")),
    ]
    driver = Driver(tiny)
    driver.tick(free)
    serve(driver, *rows)
    error = driver.failure("stuck").error
    assert error.message == "Generation error: no token can continue the constrained output"
    assert error.status == 500
    kinds = [type(event) for event in driver.events("stuck")]
    assert kinds == [RowAccepted, RowStarted, RowTokens, RowTokens, RowFailed]
    assert bytes(driver.tokens("stuck")) == b"ab"
    assert bytes(driver.tokens("fine")) == b'"yes"'
    assert driver.tokens("free") == alone(tiny, free)
    assert driver.stats.kv_blocks == 0


# Think blocks.


def thinking(
    budget: int,
    *,
    is_open: bool = False,
    message: bytes = b"",
    opener: Sequence[int] = (THINK,),
    close: Sequence[int] = (CLOSE,),
) -> Thinking:
    return Thinking(
        open_ids=tuple(opener),
        close_ids=tuple(close),
        message_ids=tuple(message),
        budget=budget,
        is_open=is_open,
    )


BLOCKS: dict[str, tuple[bytes, Thinking | None, list[int], str]] = {
    "budget-3": (b"x?", thinking(3), [THINK, *b"abc", CLOSE, *b"ABC"], "....!..."),
    "budget-0": (b"x?", thinking(0), [THINK, CLOSE, *b"ABCDEF"], ".!......"),
    "no-cap": (b"x?", thinking(-1), [THINK, *b"abcdefg"], "........"),
    "primed-0": (b"x`", thinking(0, is_open=True), [CLOSE, *b"ABCDEFG"], "!......."),
    "primed-3": (b"x`", thinking(3, is_open=True), [*b"abc", CLOSE, *b"ABCD"], "...!...."),
    "message": (b"x?", thinking(1, message=b"ok"), [THINK, *b"aok", CLOSE, *b"ABC"], "..!!!..."),
    "primed-message": (
        b"x`",
        thinking(0, is_open=True, message=b"ok"),
        [*b"ok", CLOSE, *b"ABCDE"],
        "!!!.....",
    ),
    "long-marker": (
        b"x?",
        thinking(2, close=(CLOSE, 10)),
        [THINK, *b"ab", CLOSE, 10, 11, 12, 13],
        "...!!...",
    ),
    "half-said-marker": (
        b"x?",
        thinking(2, message=b"ok", close=(*b"b", CLOSE)),
        [THINK, *b"ab", CLOSE, *b"ABCD"],
        "...!....",
    ),
    "never-thinks": (b"xk", thinking(0), [*b"lmnopqrs"], "........"),
    "natural-end": (b"x?", thinking(9, close=b"c"), [THINK, *b"abcdefg"], "........"),
    "cut-in-its-end": (b"xy?", thinking(0, message=b"0123456"), [THINK, *b"0123456"], ".!!!!!!!"),
    "not-watched": (b"x?", None, [THINK, *b"abcdefg"], "........"),
}
"""Prompt, block, the eight tokens that are said and which of them are told as forced."""


@BOTH
@pytest.mark.parametrize("name", BLOCKS)
def test_budget_closes_the_block(counting: Path, name: str, sampling: dict[str, Any]) -> None:
    text, block, said, forced = BLOCKS[name]
    driver = Driver(counting)
    driver.run(submit("t", list(text), 8, eos=ENDS, thinking=block, **sampling))
    assert driver.tokens("t") == said
    assert flags(driver, "t") == forced
    assert driver.reason("t") is FinishReason.LENGTH


@BOTH
def test_blocks_of_a_batch_close_each_at_its_own_budget(
    counting: Path, sampling: dict[str, Any]
) -> None:
    driver = Driver(counting, parallel=6)
    rows = [
        submit(name, list(text), 8, eos=ENDS, thinking=block, **sampling)
        for name, (text, block, _, _) in BLOCKS.items()
    ]
    for row in rows:
        driver.tick(row)
    driver.run()
    for name, (_, _, said, forced) in BLOCKS.items():
        assert (name, driver.tokens(name), flags(driver, name)) == (name, said, forced)


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
def test_answer_goes_on_from_the_forced_end(tiny: Path, temperature: float) -> None:
    """A model with a memory: the first thoughts are what they would be without a budget, and the
    greedy answer what it would be were all that was said its prompt."""
    free = [submit(f"f{i}", prompt(8, i), 20, temperature=temperature) for i in range(2)]
    row = submit("t", prompt(20), 20, temperature=temperature, seed=4)
    block = thinking(3, is_open=True, message=b"ok")
    driver = Driver(tiny)
    driver.run(*free, submit("t", prompt(20), 20, temperature=temperature, seed=4, thinking=block))
    said = driver.tokens("t")
    assert said[:6] == [*alone(tiny, row)[:3], *b"ok", CLOSE]
    assert flags(driver, "t") == "...!!!" + "." * 14
    if temperature == 0:
        assert said[6:] == alone(tiny, submit("rest", [*prompt(20), *said[:6]], 14))
    for other in free:
        assert driver.tokens(other.id) == alone(tiny, other)


# A constraint that waits for the end of the block.

WAITING = Constraint(grammar=const("no").grammar, after_thinking=True)
ANSWER = b'"no"'
AFTER: dict[str, tuple[bytes, Thinking | None, list[int], str]] = {
    "budget": (b"x?", thinking(2), [THINK, *b"ab", CLOSE, *ANSWER], "...!...."),
    "natural": (b"x?", thinking(-1, close=b"c"), [THINK, *b"abc", *ANSWER], "........"),
    "primed": (b"x`", thinking(1, is_open=True), [*b"a", CLOSE, *ANSWER], ".!...."),
    "no-block": (b"x!", thinking(3), [*ANSWER], "...."),
    "not-watched": (b"xk", None, [*ANSWER], "...."),
    # The model would end its answer after the full stop: in a block it may not.
    "no-end-inside": (b"x.", thinking(3, is_open=True), [0, 1, 2, CLOSE, *ANSWER], "...!...."),
    # Only the end of a block is told as forced, not the rest of its opening marker.
    "long-opener": (
        b"x?",
        thinking(2, opener=(THINK, 10, 11)),
        [THINK, 10, 11, 12, 13, CLOSE, *ANSWER],
        ".....!....",
    ),
}


@BOTH
@pytest.mark.parametrize("name", [name for name in AFTER if name != "no-end-inside"])
def test_constraint_binds_after_the_block(
    counting: Path, name: str, sampling: dict[str, Any]
) -> None:
    assert_binds_after(counting, name, sampling)


def test_text_does_not_end_inside_a_block_that_an_answer_follows(counting: Path) -> None:
    assert_binds_after(counting, "no-end-inside", {})


def assert_binds_after(counting: Path, name: str, sampling: dict[str, Any]) -> None:
    text, block, said, forced = AFTER[name]
    free = submit("free", list(b"xA"), 20, **sampling)
    driver = Driver(counting)
    driver.tick(free)
    bound = submit("t", list(text), 30, eos=ENDS, thinking=block, constraint=WAITING, **sampling)
    serve(driver, bound)
    assert driver.tokens("t") == said
    assert flags(driver, "t") == forced
    assert driver.reason("t") is FinishReason.STRUCTURE
    assert bytes(driver.tokens("free")) == b"BCDEFGHIJKLMNOPQRSTU"
