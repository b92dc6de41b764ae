"""Rows that join, leave, are cancelled and preempted, with random sampling: each text is what
the request gives alone, and nothing of a row stays behind. 96 runs, and 500 of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from msgspec.structs import replace

from mlxcel.core.cache import CacheTag
from mlxcel.core.request import Lane
from mlxcel.core.sampling import AdaptiveP, Dry, DynamicTemperature, Mirostat
from mlxcel.core.steering import Constraint, LoopGuard, Thinking
from mlxcel.link.messages import Cancel, RowFailed, RowPrompt, Submit, unpack_tokens
from tests.engine.driver import Driver, submit

WARM: dict[str, Any] = {"conversations": {"enabled": True}, "prompt": {"min_prefix": 1}}
"""Adopts to the token, as conversations do."""
LOOKUP: dict[str, Any] = {
    "kind": "prompt_lookup",
    "ngram_min": 1,
    "ngram_max": 3,
    "max_draft": 5,
    "max_batch": 3,
    "policy": "graded",
}
SETUPS: dict[str, dict[str, Any]] = {
    "plain": {"parallel": 3},
    "chunks": {"parallel": 2, "prefill_chunk_size": 8, "prefill_grant_interval": 2},
    "mixed": {"parallel": 3, "prefill_chunk_size": 8, "mixed_step": True},
    "longest": {"parallel": 2, "preemption": "longest-first", "prefill_chunk_size": 16},
    "lowest": {"parallel": 2, "preemption": "lowest-priority", "max_batch_prefill": 1},
    "budget": {
        "parallel": 3,
        "preemption": "longest-first",
        "cache": {"kv_budget": 10 * 2 * 32 * 2 * 16 * 4},
    },
    "sync": {"parallel": 3, "lookahead": False},
    "serial": {"no_batch": True},
    "warm": {"parallel": 3, "cache": WARM},
    "warm-little": {
        "parallel": 3,
        "prefill_chunk_size": 8,
        "mixed_step": True,
        "cache": WARM | {"prompt": {"min_prefix": 1, "capacity_bytes": 60 * 512}},
    },
    "warm-budget": {
        "parallel": 3,
        "preemption": "longest-first",
        "cache": WARM | {"kv_budget": 10 * 2 * 32 * 2 * 16 * 4},
    },
    "warm-int8": {"parallel": 3, "cache": WARM | {"kv": {"mode": "int8"}}},
    "lookup": {"parallel": 3, "draft": LOOKUP},
    "lookup-int8": {"parallel": 3, "draft": LOOKUP, "cache": {"kv": {"mode": "int8"}}},
    "lookup-budget": {
        "parallel": 3,
        "preemption": "longest-first",
        "draft": LOOKUP,
        "cache": WARM | {"kv_budget": 10 * 2 * 32 * 2 * 16 * 4},
    },
    "lookup-warm": {
        "parallel": 3,
        "preemption": "longest-first",
        "prefill_chunk_size": 8,
        "mixed_step": True,
        "draft": LOOKUP | {"max_batch": 2, "policy": "gated"},
        "cache": WARM,
    },
}
SOLO = {"serial": "plain", "warm-int8": "int8", "lookup-int8": "int8"}

DRY = Dry(multiplier=1.0, base=1.75, allowed_length=1, window=32)
THINKING = Thinking(open_ids=(60,), close_ids=(62, 10), message_ids=(33,), budget=3)
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 1.3, "typical_p": 0.7, "top_n_sigma": 2.0},
    {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.02},
    {"temperature": 0.0, "repetition_penalty": 1.3, "penalty_window": 20},
    {"temperature": 1.0, "presence_penalty": 0.5, "frequency_penalty": 0.2, "dry": DRY},
    {"temperature": 1.0, "mirostat": Mirostat(version=1, rate=0.2, target=3.0)},
    {"temperature": 1.0, "mirostat": Mirostat(version=2, rate=0.2, target=3.0)},
    {"temperature": 1.0, "adaptive": AdaptiveP(target=0.3, decay=0.8)},
    {"temperature": 1.0, "dynamic_temperature": DynamicTemperature(span=0.5, exponent=1.0)},
    {"temperature": 1.0, "bias": ((65, 4.0), (66, -9.0))},
]
EXTRAS: list[dict[str, Any]] = [
    {},
    {},
    {"top_logprobs": 2},
    {"top_logprobs": 2, "scores_prompt": True, "tells_progress": True},
    {"loop": LoopGuard(shortest=1, longest=4, count=2)},
    {"thinking": THINKING},
    {"thinking": Thinking(open_ids=(60,), close_ids=(62,), budget=0, is_open=True)},
    {"choices": 3},
    {"constraint": Constraint(grammar=LLMatcher.grammar_from_regex("[a-z]{2,9}"))},
]


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a run: a request arrives, or one is cancelled, then some ticks pass."""

    request: Submit | None
    cancelled: int | None
    ticks: int


@st.composite
def runs(draw: st.DrawFn) -> list[Step]:
    steps = []
    for i in range(draw(st.integers(2, 5))):
        head = draw(st.sampled_from([[], [], list(range(60, 90)), [*range(60, 75), 7, 7, 7]]))
        ids = [*head, *draw(st.lists(st.integers(0, 255), min_size=1, max_size=40 - len(head)))]
        options = {
            "lane": draw(st.sampled_from(list(Lane))),
            "seed": draw(st.integers(0, 2**32 - 1)),
            **draw(st.sampled_from(SAMPLINGS)),
            **draw(st.sampled_from(EXTRAS)),
            "cache": draw(st.sampled_from([None, CacheTag(), CacheTag(session="b")])),
        }
        request = submit(f"r{i}", ids, draw(st.integers(0, 12)), **options)
        steps.append(Step(request, None, draw(st.integers(0, 6))))
        if draw(st.integers(0, 3)) == 0:
            steps.append(Step(None, draw(st.integers(0, i)), draw(st.integers(0, 3))))
    return steps


@lru_cache
def engine(tiny: Path, name: str) -> Driver:
    """One for all runs: what a run leaves behind would show in the next one."""
    return Driver(tiny, **(SETUPS | {"int8": {"cache": {"kv": {"mode": "int8"}}}})[name])


def prompt_said(driver: Driver, name: str) -> list[float]:
    events = [event for event in driver.events(name) if isinstance(event, RowPrompt)]
    return [score.said for event in events for score in event.scores]


def names_of(run: list[Step]) -> set[str]:
    return {step.request.id for step in run if step.request is not None}


def is_out_of_blocks(driver: Driver, name: str, setup: str) -> bool:
    """Rows of one lane do not drive each other out: three that grow together can be one block short
    of the smallest budget. No other failure is forgiven."""
    failed = [event for event in driver.events(name) if isinstance(event, RowFailed)]
    for event in failed:
        assert "budget" in setup, event
        assert "the KV cache budget is used up" in event.error.message
    return bool(failed)


def moves(run: list[Step]) -> Iterator[tuple[list[Submit | Cancel], int]]:
    for step in run:
        if step.request is not None:
            yield [step.request], step.ticks
        else:
            yield [Cancel(id=f"r{step.cancelled}")], step.ticks


RUNS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}


@pytest.mark.slow
@settings(max_examples=96, **RUNS)
@given(run=runs(), setup=st.sampled_from(sorted(SETUPS)))
def test_every_text_is_what_the_request_gives_alone(
    tiny: Path, run: list[Step], setup: str
) -> None:
    check_run(tiny, run, setup)


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(max_examples=500, **RUNS)
@given(run=runs(), setup=st.sampled_from(sorted(SETUPS)))
def test_every_text_of_500_runs(tiny: Path, run: list[Step], setup: str) -> None:
    check_run(tiny, run, setup)


def check_run(tiny: Path, run: list[Step], setup: str) -> None:
    driver = engine(tiny, setup)
    driver.frames.clear()
    for messages, ticks in moves(run):
        driver.tick(*messages)
        for _ in range(ticks):
            driver.tick()
    driver.run()
    cancelled = {f"r{step.cancelled}" for step in run if step.request is None}
    cancelled |= {name for name in names_of(run) if is_out_of_blocks(driver, name, setup)}
    solo = engine(tiny, SOLO.get(setup, "serial"))
    for request in (step.request for step in run if step.request is not None):
        solo.frames.clear()
        solo.run(replace(request, cache=None))
        for choice in range(request.choices):
            said, expected = driver.tokens(request.id, choice), solo.tokens(request.id, choice)
            if request.id in cancelled:
                assert said == expected[: len(said)]
            else:
                assert said == expected
                assert driver.reason(request.id, choice) is solo.reason(request.id, choice)
        if request.scores_prompt and request.id not in cancelled:
            told, expected_scores = prompt_said(driver, request.id), prompt_said(solo, request.id)
            assert len(told) == len(unpack_tokens(request.tokens)) - 1
            np.testing.assert_allclose(told, expected_scores, atol=1e-4)
    stats = driver.worker.check() or driver.stats
    assert (stats.active, stats.waiting, stats.kv_blocks, stats.kv_bytes) == (0, 0, 0, 0)
