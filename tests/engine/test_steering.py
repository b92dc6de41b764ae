"""Think blocks, their budgets, and constraints that wait for their end."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mlxcel.core.byte_vocab import END, EOS, VOCAB_SIZE
from mlxcel.core.steering import Constraint, Thinking
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.engine.constraint.matcher import Matcher
from mlxcel.engine.steering import Steering

THINK, CLOSE = 258, 259  # markers of one token each
A, B, C, D = b"abcd"
ENDS = (EOS, END)


def thinking(budget: int, *, is_open: bool = False, message: Sequence[int] = ()) -> Thinking:
    return Thinking(
        open_ids=(THINK,),
        close_ids=(CLOSE,),
        message_ids=tuple(message),
        budget=budget,
        is_open=is_open,
    )


def watching(block: Thinking | None) -> Steering:
    return Steering(block, None, after_thinking=False, eos_ids=ENDS)


def said(steering: Steering, wanted: Sequence[int], count: int | None = None) -> list[int]:
    """What comes out when a model wants to say `wanted`, one place after another."""
    spoken: list[int] = []
    for token in wanted[:count]:
        forced = steering.forced()
        spoken.append(token if forced is None else forced)
        steering.accept(spoken[-1])
    return spoken


@pytest.fixture(scope="module")
def compiler(tiny: Path) -> Compiler:
    return Compiler(tiny / "tokenizer.json", VOCAB_SIZE)


@pytest.fixture
def matcher(compiler: Compiler) -> Matcher:
    return compiler.matcher(Constraint(grammar="start: /ab+/"), ENDS)


def choices(steering: Steering) -> set[int]:
    words = steering.allowed()
    assert words is not None
    return {t for t in range(VOCAB_SIZE) if words[t // 32] >> (t % 32) & 1}


@pytest.mark.parametrize(
    ("block", "wanted", "spoken"),
    [
        pytest.param(thinking(3), [THINK, A, B, C, D], [THINK, A, B, C, CLOSE], id="budget-3"),
        pytest.param(thinking(0), [THINK, A], [THINK, CLOSE], id="budget-0"),
        pytest.param(thinking(0, is_open=True), [A, B], [CLOSE, B], id="primed-0"),
        pytest.param(thinking(2, is_open=True), [A, B, C, D], [A, B, CLOSE, D], id="primed-2"),
        pytest.param(thinking(-1), [THINK, *[A] * 50], [THINK, *[A] * 50], id="no-cap"),
        pytest.param(
            thinking(1, message=[C, D]),
            [THINK, A, A, A, A, B],
            [THINK, A, C, D, CLOSE, B],
            id="message-first",
        ),
        pytest.param(
            thinking(3), [THINK, A, CLOSE, B, B, B, B], [THINK, A, CLOSE, B, B, B, B], id="natural"
        ),
        pytest.param(
            thinking(1),
            [THINK, CLOSE, THINK, A, B, C],
            [THINK, CLOSE, THINK, A, B, C],
            id="second-block-free",
        ),
        pytest.param(thinking(1), [A, B, C, D], [A, B, C, D], id="never-thinks"),
        pytest.param(thinking(1), [A, CLOSE, THINK, B, B], [A, CLOSE, THINK, B, B], id="stray-end"),
        pytest.param(None, [THINK, A], [THINK, A], id="not-watched"),
    ],
)
def test_budget_closes_the_block(
    block: Thinking | None, wanted: list[int], spoken: list[int]
) -> None:
    assert said(watching(block), wanted) == spoken


def test_markers_of_several_tokens() -> None:
    block = Thinking(open_ids=(60, 61), close_ids=(62, 63), budget=2)
    # 60 alone opens nothing; the token of the marker that is out of place counts as thinking.
    wanted = [60, A, 60, 61, A, B, C, D, A]
    assert said(watching(block), wanted) == [60, A, 60, 61, A, B, 62, 63, A]


def test_a_marker_that_is_half_said_is_finished() -> None:
    block = Thinking(open_ids=(60,), close_ids=(62, 63), message_ids=(C,), budget=2)
    assert said(watching(block), [60, A, 62, D, D]) == [60, A, 62, 63, D]


def test_a_message_that_holds_the_marker_is_said_to_its_end() -> None:
    block = thinking(0, message=[CLOSE, C])
    assert said(watching(block), [THINK, A, A, A, B]) == [THINK, CLOSE, C, CLOSE, B]


@given(
    budget=st.integers(0, 6),
    before=st.lists(st.sampled_from([A, B]), max_size=4),
    inside=st.lists(st.sampled_from([A, B]), max_size=10),
)
def test_no_more_is_thought_than_the_budget(
    budget: int, before: list[int], inside: list[int]
) -> None:
    spoken = said(watching(thinking(budget)), [*before, THINK, *inside, CLOSE, C, C])
    block = spoken[len(before) + 1 : spoken.index(CLOSE)]
    assert block == inside[:budget]


def test_only_the_end_of_a_block_is_told_as_forced() -> None:
    steering = watching(thinking(1, message=[C]))
    told = []
    for token in [THINK, A, B, B, B]:
        told.append(steering.is_forcing)
        forced = steering.forced()
        steering.accept(token if forced is None else forced)
    assert told == [False, False, True, True, False]


def test_a_step_may_be_ahead_while_the_budget_is_far() -> None:
    steering = watching(thinking(3))
    needed = []
    for token in [A, THINK, A, B, C]:
        needed.append(steering.needs_tokens)
        steering.accept(token)
    # With two tokens inside, the third decides that the fourth is forced.
    assert needed == [False, False, False, False, True]
    assert (steering.needs_tokens, steering.forced()) == (True, CLOSE)
    steering.accept(CLOSE)
    assert not steering.needs_tokens


@pytest.mark.parametrize(
    ("block", "needed"),
    [
        pytest.param(None, False, id="nothing-watched"),
        pytest.param(thinking(-1), False, id="no-cap"),
        pytest.param(thinking(0), True, id="budget-0-before-the-block"),
        pytest.param(thinking(0, is_open=True), True, id="forced-at-once"),
    ],
)
def test_what_the_first_draws_depend_on(block: Thinking | None, needed: bool) -> None:
    assert watching(block).needs_tokens is needed


# Ended from outside


def endable(budget: int = -1, *, is_open: bool = False, message: Sequence[int] = ()) -> Thinking:
    return replace(thinking(budget, is_open=is_open, message=message), may_be_ended=True)


def test_the_next_token_is_the_first_of_the_end() -> None:
    steering = watching(endable(message=[C, D]))
    assert said(steering, [THINK, A, B]) == [THINK, A, B]
    steering.end_thinking(is_flying=False)
    assert steering.needs_tokens
    told = []
    for token in [A, A, A, A]:
        told.append((steering.is_forcing, *said(steering, [token])))
    assert told == [(True, C), (True, D), (True, CLOSE), (False, A)]
    assert not steering.needs_tokens


def test_a_token_in_flight_is_still_thought() -> None:
    steering = watching(endable())
    said(steering, [THINK, A])
    assert not steering.needs_tokens
    steering.end_thinking(is_flying=True)
    assert steering.needs_tokens
    assert steering.forced() is None
    assert said(steering, [B, B, C]) == [B, CLOSE, C]


def test_a_token_in_flight_may_end_the_block_itself() -> None:
    steering = watching(endable())
    said(steering, [THINK, A])
    steering.end_thinking(is_flying=True)
    assert said(steering, [CLOSE, B, THINK, B]) == [CLOSE, B, THINK, B]
    assert not steering.needs_tokens


@pytest.mark.parametrize(
    ("block", "before"),
    [
        pytest.param(endable(), [A], id="before-the-block"),
        pytest.param(endable(), [THINK, A, CLOSE], id="after-the-block"),
        pytest.param(thinking(-1), [THINK, A], id="not-arranged"),
        pytest.param(None, [THINK, A], id="not-watched"),
    ],
)
@pytest.mark.parametrize("is_flying", [False, True])
def test_nothing_is_ended_elsewhere(
    block: Thinking | None, before: list[int], is_flying: bool
) -> None:
    steering = watching(block)
    said(steering, before)
    steering.end_thinking(is_flying=is_flying)
    assert not steering.needs_tokens
    assert said(steering, [B, B, B]) == [B, B, B]


def test_a_block_is_ended_once() -> None:
    steering = watching(endable(is_open=True, message=[C]))
    for _ in range(3):
        steering.end_thinking(is_flying=False)
    assert said(steering, [A, A, A]) == [C, CLOSE, A]
    steering = watching(endable(1, message=[C]))
    said(steering, [THINK, A, A])
    steering.end_thinking(is_flying=False)
    assert said(steering, [A, A]) == [CLOSE, A]


@given(budget=st.integers(-1, 4), ended=st.integers(0, 8), is_flying=st.booleans())
def test_at_most_the_token_in_flight_is_thought_after_the_end(
    budget: int, ended: int, is_flying: bool
) -> None:
    steering = watching(endable(budget))
    spoken = said(steering, [THINK, *[A] * ended])
    was_inside = CLOSE not in spoken
    steering.end_thinking(is_flying=is_flying)
    spoken += said(steering, [A] * 6)
    asked = ended + is_flying if was_inside else ended
    thought = asked if budget < 0 else min(budget, asked)
    assert spoken[: thought + 2] == [THINK, *[A] * thought, CLOSE]


# With a constraint


def test_constraint_binds_from_the_start(matcher: Matcher) -> None:
    steering = Steering(None, matcher, after_thinking=True, eos_ids=ENDS)
    assert choices(steering) == {A}
    said(steering, [A])
    assert choices(steering) == {B}
    said(steering, [B])
    assert choices(steering) == {B, *ENDS}
    assert steering.needs_tokens
    assert not steering.is_complete


def test_constraint_that_does_not_wait_watches_no_block(matcher: Matcher) -> None:
    steering = Steering(thinking(0, is_open=True), matcher, after_thinking=False, eos_ids=ENDS)
    assert steering.forced() is None
    assert choices(steering) == {A}


def test_before_the_block_the_marker_may_come_too(matcher: Matcher) -> None:
    steering = Steering(thinking(-1), matcher, after_thinking=True, eos_ids=ENDS)
    assert choices(steering) == {A, THINK}


def test_inside_the_block_anything_but_an_end_may_come(matcher: Matcher) -> None:
    steering = Steering(thinking(-1), matcher, after_thinking=True, eos_ids=ENDS)
    said(steering, [THINK, D])
    assert choices(steering) == set(range(VOCAB_SIZE)) - set(ENDS)
    assert steering.waiting is None


def test_after_the_block_the_constraint_binds(matcher: Matcher) -> None:
    steering = Steering(thinking(-1), matcher, after_thinking=True, eos_ids=ENDS)
    said(steering, [THINK, D, CLOSE])
    assert choices(steering) == {A}
    assert steering.waiting is matcher


def test_budget_and_constraint_together(compiler: Compiler) -> None:
    matcher = compiler.matcher(Constraint(grammar='start: "ab"'), ENDS)
    steering = Steering(thinking(1), matcher, after_thinking=True, eos_ids=ENDS)
    assert said(steering, [THINK, D, D]) == [THINK, D, CLOSE]
    assert choices(steering) == {A}
    said(steering, [A])
    assert not steering.is_complete
    said(steering, [B])
    assert steering.is_complete


def test_an_answer_that_began_thinks_no_more(matcher: Matcher) -> None:
    steering = Steering(thinking(-1), matcher, after_thinking=True, eos_ids=ENDS)
    said(steering, [A])
    assert choices(steering) == {B}


def test_rest_of_a_long_opening_marker_is_forced_under_a_constraint(matcher: Matcher) -> None:
    block = Thinking(open_ids=(60, 61, 62), close_ids=(CLOSE,), budget=1)
    steering = Steering(block, matcher, after_thinking=True, eos_ids=ENDS)
    assert choices(steering) == {A, 60}
    assert said(steering, [60, A, A, D, D]) == [60, 61, 62, D, CLOSE]
    assert not steering.is_forcing


def test_a_marker_that_may_begin_the_answer_is_the_answer(compiler: Compiler) -> None:
    matcher = compiler.matcher(Constraint(grammar='start: "<x"'), ENDS)
    block = Thinking(open_ids=(ord("<"), ord("t")), close_ids=(CLOSE,))
    steering = Steering(block, matcher, after_thinking=True, eos_ids=ENDS)
    said(steering, [ord("<")])
    assert (steering.forced(), choices(steering)) == (None, {ord("x")})
