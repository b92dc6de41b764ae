"""What goes wrong in the middle of things, through the worker: who fails, how often it is told,
and that nothing stays behind."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlxcel.core.byte_vocab import VOCAB_SIZE
from mlxcel.core.events import FinishReason
from mlxcel.core.request import Lane
from mlxcel.link.messages import Cancel, RowEnded, RowFailed, RowFinished, RowStarted, Submit
from tests.engine.driver import Driver, submit

POISON = 255
"""A token whose embedding is not a number, in `poisoned`: what sees it has no output."""
BANNED: dict[str, Any] = {"bias": tuple((token, -np.inf) for token in range(VOCAB_SIZE))}
UNDRAWN = (
    "Generation error: no token could be drawn: the model's output is not a number, "
    "or all is banned"
)


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(7 * i * (seed + 3) + seed) % 255 for i in range(length)]


@pytest.fixture(scope="module")
def poisoned(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("poisoned") / "tiny-poisoned"
    shutil.copytree(tiny, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"].copy()
    weights["model.embed_tokens.weight"][POISON] = np.nan
    weights["lm_head.weight"] = weights["lm_head.weight"].copy()
    weights["lm_head.weight"][POISON] = 0.0  # it is never said
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})
    return folder


@lru_cache
def _solo(folder: Path) -> Driver:
    return Driver(folder, no_batch=True, lookahead=False)


def alone(folder: Path, request: Submit) -> list[int]:
    driver = _solo(folder)
    driver.frames.clear()
    driver.run(request)
    return driver.tokens(request.id)


def closings(driver: Driver, name: str) -> list[str]:
    """What follows the first event that closes a request, that event included."""
    kinds = [type(event) for event in driver.events(name)]
    first = next(i for i, kind in enumerate(kinds) if kind in (RowFailed, RowFinished))
    return [kind.__name__ for kind in kinds[first:]]


def assert_all_is_well(driver: Driver, folder: Path, *requests: Submit) -> None:
    """These have their whole text, nothing is held any more, and the next request works."""
    for request in requests:
        assert driver.tokens(request.id) == alone(folder, request), request.id
        assert closings(driver, request.id) == ["RowFinished"]
    after = submit("after", prompt(33, 4), 6)
    driver.run(after)
    assert driver.tokens("after") == alone(folder, after)
    stats = driver.stats
    assert (stats.active, stats.waiting, stats.kv_blocks, stats.kv_bytes) == (0, 0, 0, 0)


def assert_failed(driver: Driver, *names: str, message: str) -> None:
    for name in names:
        error = driver.failure(name).error
        assert (error.code, error.status) == ("generation_failed", 500)
        assert error.message == message
        assert closings(driver, name) == ["RowFailed"]
        assert not [event for event in driver.events(name) if isinstance(event, RowEnded)]


@contextmanager
def failing(driver: Driver, is_hit: Callable[[mx.array], bool]) -> Iterator[None]:
    """Forwards of the model whose input `[rows, tokens]` is hit raise, as MLX does."""
    kind: Any = type(driver.model.network)
    forward = kind.__call__

    def call(network: nn.Module, inputs: mx.array, *args: Any, **named: Any) -> Any:
        if is_hit(inputs):
            raise RuntimeError("[malloc] Unable to allocate 99 bytes.")
        return forward(network, inputs, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__call__", call)
        yield


def is_step(inputs: mx.array) -> bool:
    return inputs.shape[1] == 1


def is_prefill(inputs: mx.array) -> bool:
    return inputs.shape[1] > 1


NO_MEMORY = "Generation error: [malloc] Unable to allocate 99 bytes."


# A row that has nothing to draw.


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_p": 0.9}], ids=["0", "1"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_row_whose_output_is_not_a_number_fails_alone(
    poisoned: Path, place: int, sampling: dict[str, Any]
) -> None:
    """Longer than the others: what they do not reach of its KV is beside them in memory."""
    good = [submit(f"g{i}", prompt(10 + 3 * i, i), 12, seed=i, **sampling) for i in range(3)]
    bad = submit("bad", [*prompt(30), POISON, *prompt(30, 1)], 12, **sampling)
    rows = [*good[:place], bad, *good[place:]]
    driver = Driver(poisoned)
    for row in rows:
        driver.tick(row)
    driver.run()
    assert_failed(driver, "bad", message=UNDRAWN)
    assert_all_is_well(driver, poisoned, *good)


def test_scored_prompt_whose_output_is_not_a_number_fails_alone(poisoned: Path) -> None:
    good = [submit(f"g{i}", prompt(10 + 3 * i, i), 12) for i in range(3)]
    driver = Driver(poisoned)
    bad = [*prompt(20), POISON, 1, 2]
    driver.run(*good[:2], submit("bad", bad, 0, scores_prompt=True, top_logprobs=2), good[2])
    unscored = "no token of the prompt can be scored: the model's output is not a number"
    assert_failed(driver, "bad", message=f"Generation error: {unscored}")
    assert_all_is_well(driver, poisoned, *good)


def test_prompt_whose_output_is_not_a_number_fails_alone_in_a_cohort(poisoned: Path) -> None:
    good = [submit(f"g{i}", prompt(10 + 3 * i, i), 12) for i in range(3)]
    driver = Driver(poisoned)
    driver.run(good[0], submit("bad", [*prompt(20), POISON, 1, 2], 12), *good[1:])
    assert driver.stats.prefill_chunks == 1
    assert_failed(driver, "bad", message=UNDRAWN)
    assert_all_is_well(driver, poisoned, *good)


def test_place_of_a_row_that_was_not_a_number_is_clean(poisoned: Path) -> None:
    keeper = submit("keeper", prompt(10), 60)
    driver = Driver(poisoned, parallel=2)
    driver.tick(keeper, submit("bad", [POISON, *prompt(90)], 12))
    assert_failed(driver, "bad", message=UNDRAWN)
    later = submit("later", prompt(5, 1), 40)
    driver.run(later)
    assert_all_is_well(driver, poisoned, keeper, later)


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_request_of_several_choices_fails_as_a_whole_and_once(tiny: Path, parallel: int) -> None:
    good = submit("good", prompt(9), 12)
    driver = Driver(tiny, parallel=parallel)
    driver.run(good, submit("bad", prompt(20), 12, choices=2, **BANNED))
    assert_failed(driver, "bad", message=UNDRAWN)
    assert not [event for event in driver.events("bad") if isinstance(event, RowStarted)]
    assert_all_is_well(driver, tiny, good)


# The end of text.


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}], ids=["0", "1"])
def test_end_of_text_as_the_first_token(tiny: Path, sampling: dict[str, Any]) -> None:
    other = submit("other", prompt(9), 12)
    first = alone(tiny, submit("free", prompt(20), 1, **sampling))
    driver = Driver(tiny)
    driver.run(submit("e", prompt(20), 12, eos=(first[0],), **sampling), other)
    kinds = [type(event).__name__ for event in driver.events("e")]
    assert kinds == ["RowAccepted", "RowStarted", "RowEnded", "RowFinished"]
    assert driver.reason("e") is FinishReason.EOS
    assert driver.finish("e").usage.completion_tokens == 0
    assert_all_is_well(driver, tiny, other)


def test_end_of_text_is_said_where_it_is_ignored(tiny: Path) -> None:
    free = submit("free", prompt(20), 12)
    said = alone(tiny, free)
    driver = Driver(tiny)
    driver.run(submit("e", prompt(20), 12, eos=(said[0], said[5]), ignore_eos=True))
    assert driver.tokens("e") == said
    assert driver.reason("e") is FinishReason.LENGTH
    assert driver.finish("e").usage.completion_tokens == 12


def test_every_choice_may_end_at_once(tiny: Path) -> None:
    first = alone(tiny, submit("free", prompt(20), 1))
    driver = Driver(tiny)
    driver.run(submit("e", prompt(20), 12, eos=(first[0],), choices=3))
    kinds = [type(event).__name__ for event in driver.events("e")]
    assert kinds == ["RowAccepted", "RowStarted", *["RowEnded"] * 3, "RowFinished"]


# Forwards that fail.


@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize("moment", ["begin", "finish"])
def test_failing_prefill_ends_its_request_alone(tiny: Path, moment: str, choices: int) -> None:
    busy = submit("busy", prompt(8), 30)
    driver = Driver(tiny)
    driver.tick(busy)
    driver.tick()
    with _failing_prefill(driver, moment):
        driver.tick(submit("bad", prompt(40), 5, choices=choices))
    assert_failed(driver, "bad", message=NO_MEMORY)
    driver.run()
    assert_all_is_well(driver, tiny, busy)


@pytest.mark.parametrize("moment", ["together", "finish"])
def test_failing_prefill_of_a_cohort_ends_all_of_it(tiny: Path, moment: str) -> None:
    busy = submit("busy", prompt(8), 30)
    driver = Driver(tiny)
    driver.tick(busy)
    with _failing_prefill(driver, moment):
        driver.tick(submit("b0", prompt(40), 5), submit("b1", prompt(30, 1), 5))
    assert_failed(driver, "b0", "b1", message=NO_MEMORY)
    driver.run()
    assert_all_is_well(driver, tiny, busy)


@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
@pytest.mark.parametrize("moment", ["begin", "finish"])
def test_failing_later_chunk_ends_its_request_alone(tiny: Path, moment: str, mixed: bool) -> None:
    busy, waiting = submit("busy", prompt(8), 60), submit("waiting", prompt(20, 1), 5)
    driver = Driver(tiny, prefill_chunk_size=16, prefill_grant_interval=2, mixed_step=mixed)
    driver.tick(busy)
    driver.tick(submit("bad", prompt(150), 5), waiting)
    for _ in range(4):
        driver.tick()
    assert driver.stats.mixed_steps == (4 if mixed else 0)
    with _failing_prefill(driver, moment):
        for _ in range(3):
            driver.tick()
    assert_failed(driver, "bad", message=NO_MEMORY)
    driver.run()
    assert_all_is_well(driver, tiny, busy, waiting)


def test_failing_prefill_of_a_row_that_was_driven_out_ends_its_request_once(tiny: Path) -> None:
    high = submit("h", prompt(5), 4, lane=Lane.HIGH)
    driver = Driver(tiny, parallel=2, preemption="longest-first")
    driver.tick(submit("bad", prompt(40), 30, choices=2, lane=Lane.LOW))
    driver.tick()
    driver.tick(high)
    assert driver.stats.preemptions == 1
    with failing(driver, is_prefill):
        driver.run()
    assert_failed(driver, "bad", message=NO_MEMORY)
    assert_all_is_well(driver, tiny, high)


def test_failing_step_of_a_mixed_turn_leaves_the_prompt_alone(tiny: Path) -> None:
    long = submit("long", prompt(150), 12)
    driver = Driver(tiny, prefill_chunk_size=16, mixed_step=True)
    driver.tick(submit("busy", prompt(8), 60))
    driver.tick(long)
    with failing(driver, is_step):
        driver.tick()
    assert_failed(driver, "busy", message=NO_MEMORY)
    driver.run()
    assert_all_is_well(driver, tiny, long)


@pytest.mark.parametrize("choices", [1, 2])
def test_failing_step_while_a_last_token_flies(tiny: Path, choices: int) -> None:
    """The step in flight holds the last token of one row; the next, without it, fails. Both are
    over, and both are told so once."""
    driver = Driver(tiny)
    driver.tick(submit("short", prompt(8), 4), submit("long", prompt(9, 1), 30, choices=choices))
    while driver.stats.decode_steps < 4:
        driver.tick()
    assert len(driver.tokens("short")) == 3
    with failing(driver, is_step):
        driver.tick()
    assert_failed(driver, "long", message=NO_MEMORY)
    assert len(closings(driver, "short")) == 1
    driver.run()
    assert_all_is_well(driver, tiny)


def test_failing_step_ends_choices_that_wait_too(tiny: Path) -> None:
    waiting = submit("waiting", prompt(9, 1), 5)
    driver = Driver(tiny, parallel=1)
    driver.tick(submit("bad", prompt(8), 6, choices=3, temperature=1.0), waiting)
    driver.tick()
    with failing(driver, is_step):
        driver.tick()
    assert_failed(driver, "bad", message=NO_MEMORY)
    driver.run()
    assert_all_is_well(driver, tiny, waiting)


# Those who leave in the middle of a prompt.


@pytest.fixture
def halfway(tiny: Path) -> Driver:
    """A row decodes, and a prompt of 10 chunks has two of them in its KV."""
    driver = Driver(tiny, prefill_chunk_size=16, mixed_step=True)
    driver.tick(submit("busy", prompt(8), 40))
    driver.tick(submit("long", prompt(150), 12))
    driver.tick()
    assert (driver.stats.active, driver.stats.mixed_steps) == (2, 1)
    return driver


@pytest.mark.parametrize("gone", [["long"], ["busy"], ["long", "busy"]], ids="-".join)
def test_cancel_in_the_middle_of_a_mixed_prompt(
    tiny: Path, halfway: Driver, gone: list[str]
) -> None:
    said = {name: halfway.tokens(name) for name in gone}
    halfway.tick(*(Cancel(id=name) for name in gone))
    assert halfway.stats.active == 2 - len(gone)
    halfway.run()
    rows = {"busy": submit("busy", prompt(8), 40), "long": submit("long", prompt(150), 12)}
    kept = [row for name, row in rows.items() if name not in gone]
    assert_all_is_well(halfway, tiny, *kept)
    for name in gone:
        assert halfway.tokens(name) == said[name]
        assert not [event for event in halfway.events(name) if isinstance(event, RowEnded)]


def test_close_in_the_middle_of_a_mixed_prompt_leaves_nothing(halfway: Driver) -> None:
    halfway.close()
    halfway.tick()  # its invariants: no row, and no block of one
    stats = halfway.stats
    assert (stats.active, stats.waiting, stats.kv_blocks, stats.kv_bytes) == (0, 0, 0, 0)


@contextmanager
def _failing_prefill(driver: Driver, moment: str) -> Iterator[None]:
    """The next one: as it is begun, or as it is waited for, where MLX tells what went wrong on
    the device."""
    prefiller = driver.worker._scheduler._reader._prefiller
    real = getattr(prefiller, moment)
    calls = []

    def out_of_memory(prompt: object) -> Any:
        calls.append(prompt)
        if len(calls) == 1:
            raise RuntimeError("[malloc] Unable to allocate 99 bytes.")
        return real(prompt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefiller, moment, out_of_memory)
        yield
    assert calls
