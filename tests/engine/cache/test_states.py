"""The state of a row, taken and gone on from: every family's own caches, against a cold read."""

from functools import cache, partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from mlxcel.engine.cache.states import NotKept, State, cut, restored, taken
from mlxcel.engine.kv.library import LibraryKV
from mlxcel.engine.kv.prefilled import Prefilled
from tests.engine.kv_rows import Logits, assert_near, prefilled, step, text
from tests.tiny.families import (
    FALCON_H1,
    GEMMA3,
    GEMMA4,
    GPT_OSS,
    LLAMA4,
    MAMBA2,
    NEMOTRON_H,
    QWEN3_5,
    network_of,
)

pytestmark = pytest.mark.slow

WINDOW = 32
"""Of every family here that has one."""
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma3": GEMMA3,
    "gemma4": GEMMA4,
    "gpt-oss": GPT_OSS,
    "llama4": LLAMA4,
    "mamba2": MAMBA2,
    "qwen3.5": QWEN3_5,
    "nemotron-h": NEMOTRON_H,
    "falcon-h1": FALCON_H1,
}
ROTATING = ("gemma3", "gemma4", "gpt-oss")
RECURRENT = ("mamba2", "qwen3.5", "nemotron-h", "falcon-h1")
IN_A_BATCH = tuple(name for name in CONFIGS if name != "llama4")
QUICK = ("gemma3", "llama4", "qwen3.5", "falcon-h1")
"""One of each way to hold state: a window, chunks, arrays beside columns, both in one layer. The
others are slow tests."""


def param(family: str, *more: int, id: str = "") -> Any:
    marks = () if family in QUICK else pytest.mark.slow
    return pytest.param(family, *more, id=id or family, marks=marks)


families = pytest.mark.parametrize("family", [param(name) for name in CONFIGS])
network = cache(lambda family: network_of(CONFIGS[family]))
CASES = [
    param(family, length, id=f"{family}-{length}")
    for family in CONFIGS
    for length in ((5, 75) if family in RECURRENT else (5, WINDOW, WINDOW + 1, 75))
]
"""A window is open, just full, has just moved, has moved on."""


def fresh(family: str) -> list[Any]:
    return make_prompt_cache(network(family))


def read(family: str, caches: list[Any], tokens: list[int], *, chunk: int = 20) -> Logits:
    """All tokens in chunks, into the caches; the logits after the last one."""
    for start in range(0, len(tokens), chunk):
        logits = network(family)(mx.array([tokens[start : start + chunk]]), cache=caches)[0, -1]
        mx.eval(logits, [one.state for one in caches])
    return np.array(logits)


def said(family: str, caches: list[Any], tokens: list[int]) -> Logits:
    """Tokens one by one, as an answer is; the logits after each."""
    return np.array([read(family, caches, [token]) for token in tokens])


def state_at(family: str, tokens: list[int], *, chunk: int = 20) -> State:
    caches = fresh(family)
    read(family, caches, tokens, chunk=chunk)
    return evaluated(taken(caches, len(tokens)))


def evaluated(state: State) -> State:
    mx.eval(state.arrays())
    return state


def bits(state: State) -> list[bytes]:
    return [np.array(array).tobytes() for array in state.arrays()]


# Going on.


@pytest.mark.parametrize(("family", "length"), CASES)
def test_restored_goes_on_as_the_row_it_was_taken_from(family: str, length: int) -> None:
    prompt, answer, more = text(length, 1), text(6, 2), text(40, 3)
    caches = fresh(family)
    read(family, caches, prompt, chunk=200)
    state = evaluated(taken(caches, length))
    assert state.position == length
    expected = [said(family, caches, answer), read(family, caches, more)]
    again = restored(state)
    assert_near(said(family, again, answer), expected[0])
    assert_near(read(family, again, more), expected[1])


@pytest.mark.parametrize(("family", "length"), CASES)
def test_restored_goes_on_as_a_cold_row_does(family: str, length: int) -> None:
    prompt, more = text(length, 1), text(23, 2)
    cold = read(family, fresh(family), [*prompt, *more], chunk=11)
    assert_near(read(family, restored(state_at(family, prompt)), more), cold)


@families
def test_state_taken_in_mid_answer_goes_on(family: str) -> None:
    """A window that turns round in mid-answer is not in the order of time."""
    caches = fresh(family)
    read(family, caches, text(30, 1))
    said(family, caches, text(15, 2))
    state = evaluated(taken(caches, 45))
    expected = said(family, caches, text(9, 3))
    assert_near(said(family, restored(state), text(9, 3)), expected)
    assert_near(read(family, restored(state), text(9, 3)), expected[-1])


# Sharing nothing.


@families
@pytest.mark.parametrize("length", [5, 75], ids=["window-open", "window-moved-on"])
def test_state_stays_as_it_is_whatever_is_written(family: str, length: int) -> None:
    caches = fresh(family)
    read(family, caches, text(length, 1))
    state = evaluated(taken(caches, length))
    before = bits(state)
    said(family, caches, text(40, 2))
    assert bits(state) == before
    for seed in (3, 4):
        row = restored(state)
        said(family, row, text(3, seed))
        read(family, row, text(50, seed))
        assert bits(state) == before


@families
def test_state_is_right_though_the_row_went_on_before_it_was_evaluated(family: str) -> None:
    prompt = text(40, 1)
    caches = fresh(family)
    read(family, caches, prompt)
    late = taken(caches, 40)
    said(family, caches, text(40, 2))
    assert bits(evaluated(late)) == bits(state_at(family, prompt))


@families
def test_two_rows_go_on_from_one_state_at_once(family: str) -> None:
    state = state_at(family, text(40, 1))
    answers = [text(8, seed) for seed in (2, 3)]
    rows = [restored(state) for _ in answers]
    turns = [
        [said(family, row, [answer[n]]) for row, answer in zip(rows, answers, strict=True)]
        for n in range(8)
    ]
    for place, answer in enumerate(answers):
        cold = fresh(family)
        read(family, cold, text(40, 1))
        for n, token in enumerate(answer):
            assert_near(turns[n][place], said(family, cold, [token]))


# Size.


def test_only_columns_that_are_seen_are_kept() -> None:
    """Of 2 heads of 16 numbers: a cache has room for 256 columns, and a window has a chunk more
    than 32 after a chunk."""
    state = state_at("gemma3", text(75), chunk=50)
    column = 2 * 2 * 16 * 4
    assert state.nbytes == column * (WINDOW + 75)
    assert state.nbytes == sum(array.nbytes for array in state.arrays())


def test_nothing_but_the_state_stays_in_memory() -> None:
    """One head: its columns stand together, and a slice of them would keep the whole alive."""
    columns = mx.ones((1, 1, 10, 1024))
    mx.eval(columns)
    before = mx.get_active_memory()
    plain = KVCache()
    plain.update_and_fetch(columns, columns)
    state = evaluated(taken([plain], 10))
    del plain
    assert state.nbytes == 2 * 10 * 1024 * 4
    assert mx.get_active_memory() - before < 2 * state.nbytes


def test_recurrent_state_does_not_grow() -> None:
    assert state_at("mamba2", text(5)).nbytes == state_at("mamba2", text(75)).nbytes > 0


# Cutting.


@pytest.mark.parametrize("family", [param(name) for name in (*ROTATING, "llama4")])
@pytest.mark.parametrize("length", [20, WINDOW], ids=["inside", "just-full"])
@pytest.mark.parametrize("position", [1, 13, 19])
def test_cut_inside_the_window_goes_on_as_if_no_more_had_been_read(
    family: str, length: int, position: int
) -> None:
    prompt, other = text(length, 1), text(40, 2)
    state = state_at(family, prompt)
    before = bits(state)
    shorter = cut(state, position)
    assert shorter is not None
    assert shorter.position == position
    row = restored(shorter)
    cold = fresh(family)
    read(family, cold, prompt[:position])
    assert_near(said(family, row, other[:20]), said(family, cold, other[:20]))
    assert_near(read(family, row, other[20:]), read(family, cold, other[20:]))
    assert bits(state) == before


@pytest.mark.parametrize("family", ROTATING)
@pytest.mark.parametrize("position", [1, 10, WINDOW])
def test_cut_is_refused_once_the_window_has_moved_on(family: str, position: int) -> None:
    assert cut(state_at(family, text(WINDOW + 1)), position) is None


def test_cut_of_chunked_attention_needs_the_beginning_of_its_chunk() -> None:
    """After 75 tokens the next forward leaves 32 of them: 43..74, of which chunk 64..95 is one."""
    prompt, other = text(76, 1), text(30, 2)
    caches = fresh("llama4")
    read("llama4", caches, prompt[:75])
    said("llama4", caches, prompt[75:])
    state = evaluated(taken(caches, 76))
    assert state.caches[0].fields["start_position"] == 43
    for position in (64, 70):
        shorter = cut(state, position)
        assert shorter is not None
        cold = fresh("llama4")
        read("llama4", cold, prompt[:position])
        assert_near(read("llama4", restored(shorter), other), read("llama4", cold, other))
    for position in (63, 43, 20):
        assert cut(state, position) is None


@pytest.mark.parametrize("family", RECURRENT)
def test_recurrent_state_cannot_be_cut(family: str) -> None:
    state = state_at(family, text(20))
    assert cut(state, 19) is None
    assert cut(state, 20) is state


def test_nothing_is_cut_to_nothing_nor_to_more() -> None:
    state = state_at("gemma3", text(20))
    assert cut(state, 0) is None
    assert cut(state, 21) is None


# What is not kept.


def test_caches_that_read_other_tokens_are_refused() -> None:
    caches = fresh("gemma3")
    read("gemma3", caches, text(20))
    with pytest.raises(NotKept, match="counts 20 tokens where 19 were read"):
        taken(caches, 19)


def test_window_with_a_hole_is_refused() -> None:
    window = RotatingKVCache(8)
    window.update_and_fetch(mx.zeros((1, 1, 5, 4)), mx.zeros((1, 1, 5, 4)))
    window.offset = 20
    with pytest.raises(NotKept, match="a window of 8 tokens holds 5"):
        taken([window], 20)


class Odd:
    """A cache with something that is neither array nor plain value."""

    def __init__(self, held: object) -> None:
        self.window = mx.zeros((1, 3))
        self.held = held


def test_cache_that_cannot_be_copied_is_refused() -> None:
    with pytest.raises(NotKept, match="held is set"):
        taken([Odd({1, 2})], 3)


def test_class_of_a_models_own_is_kept_field_by_field() -> None:
    """deepseek_v41 has one; ours here is written in place, which its states must not show."""
    one = Odd([mx.ones((1, 2)), None, (2.5, "x")])
    state = evaluated(taken([one], 3))
    one.window += 1
    (again,) = restored(state)
    assert type(again) is Odd
    assert again.held[1:] == [None, (2.5, "x")]
    again.held[0] += 5
    assert again.window.tolist() == [[0.0] * 3]
    assert restored(state)[0].held[0].tolist() == [[1.0, 1.0]]
    assert cut(state, 2) is None


def test_cache_that_was_never_written_is_kept() -> None:
    state = taken([KVCache(), RotatingKVCache(8)], 0)
    assert state.nbytes == 0
    first, second = restored(state)
    assert first.empty()
    assert second.empty()
    assert second.max_size == 8


# Rows of a batch: mlx-lm's `extract` gives back what the row would be alone.


@pytest.mark.parametrize("family", [param(name) for name in IN_A_BATCH])
@pytest.mark.parametrize("steps", [3, 28], ids=["window-open", "window-turned"])
def test_row_extracted_from_a_batch_equals_the_row_alone(family: str, steps: int) -> None:
    net: nn.Module = network(family)
    prompts = [text(length, 5) for length in (7, 50, 21)]
    answers = [text(steps, 10 + n) for n in range(3)]
    kv = LibraryKV(partial(make_prompt_cache, net))
    for prompt in prompts[:2]:
        kv.join(prefilled(net, prompt, chunk=16))
    alone = [fresh(family) for _ in prompts]
    for prompt, caches in zip(prompts, alone, strict=True):
        read(family, caches, prompt[:-1])
    for n in range(steps):
        if n == 2:
            kv.join(prefilled(net, prompts[2], chunk=16))
        inputs = [
            ([prompt[-1], *answer])[n - late]
            for prompt, answer, late in zip(prompts, answers, (0, 0, 2), strict=True)
        ]
        rows = len(kv)
        step(net, kv, inputs[:rows])
        for token, caches in zip(inputs[:rows], alone, strict=False):
            read(family, caches, [token])
    for place, caches in enumerate(alone):
        position = len(prompts[place]) - 1 + steps - (2 if place == 2 else 0)
        state = evaluated(taken([layer.extract(place) for layer in kv.layers], position))
        again = restored(state)
        assert_near(said(family, again, text(3, 99)), said(family, caches, text(3, 99)))
        assert_near(read(family, again, text(40, 98)), read(family, caches, text(40, 98)))


@pytest.mark.parametrize("family", [param(name) for name in IN_A_BATCH])
def test_state_joins_a_batch_of_rows_that_decode(family: str) -> None:
    net = network(family)
    prompt = text(45, 1)
    state = state_at(family, prompt[:-1])
    kv = LibraryKV(partial(make_prompt_cache, net))
    kv.join(prefilled(net, text(9, 3)))
    step(net, kv, [7])
    before = bits(state)
    for _ in range(2):
        kv.join(Prefilled(restored(state), (44,)))
    logits = step(net, kv, [8, prompt[-1], 200])
    for place, last in ((1, prompt[-1]), (2, 200)):
        cold = read(family, fresh(family), [*prompt[:-1], last])
        assert_near(logits[place], cold)
    assert bits(state) == before
