"""Sampling fields of a request reach the draw on a real model, and neutral ones change nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.whole.program import Program, chat_body, serve_checkpoint, text_of

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

WILD = ("live.sampling.top_k=0", "live.sampling.top_p=1.0", "live.sampling.min_p=0.0")
HOT = {"temperature": 2.0, "seed": 5}


@pytest.fixture(scope="module")
def program(tiny: Path) -> Iterator[Program]:
    with Program(*serve_checkpoint(tiny), *WILD) as running:
        yield running


def sent(program: Program, **fields: Any) -> tuple[int, Any]:
    body = chat_body("say something") | {"max_tokens": 16} | fields
    return program.post("/v1/chat/completions", body)


def said(program: Program, **fields: Any) -> str:
    status, answer = sent(program, **fields)
    assert status == 200, answer
    return text_of(answer)


def test_a_bias_decides_what_is_said(program: Program) -> None:
    assert said(program, temperature=0, logit_bias={"65": 1000}) == "A" * 16
    assert said(program, **HOT, logit_bias={"65": 1000, "66": 1000.5}).strip("AB") == ""


def test_a_bias_on_a_token_that_is_not_there_is_refused(program: Program) -> None:
    status, answer = sent(program, logit_bias={"264": 1})
    assert (status, answer["error"]["param"]) == (400, "logit_bias")
    assert "token 264 is not in the vocabulary" in answer["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"typical_p": 1e-6}, id="typical"),
        pytest.param({"top_n_sigma": 1e-6}, id="sigma"),
        pytest.param({"xtc_probability": 1, "xtc_threshold": 0.01}, id="xtc"),
        pytest.param({"repetition_penalty": 20}, id="repetition"),
        pytest.param({"frequency_penalty": -20}, id="frequency"),
        pytest.param({"presence_penalty": -20}, id="presence"),
        pytest.param({"dry_multiplier": 50, "dry_allowed_length": 0}, id="dry"),
    ],
)
def test_a_field_changes_what_is_drawn(program: Program, fields: dict[str, Any]) -> None:
    plain = said(program, **HOT)
    changed = said(program, **HOT, **fields)
    assert changed != plain
    assert changed == said(program, **HOT, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"typical_p": 1, "top_n_sigma": 0, "xtc_probability": 0}, id="truncations"),
        pytest.param({"repetition_penalty": 0, "presence_penalty": 0}, id="penalties"),
        pytest.param({"presence_penalty": -20, "repeat_last_n": 0}, id="window-off"),
        pytest.param({"dry_multiplier": 0, "dry_allowed_length": 0}, id="dry"),
        pytest.param({"logit_bias": {}}, id="bias"),
        pytest.param({"dry_multiplier": 50, "dry_penalty_last_n": 1}, id="dry-window-of-one"),
    ],
)
def test_a_neutral_field_changes_nothing(program: Program, fields: dict[str, Any]) -> None:
    assert said(program, **HOT, **fields) == said(program, **HOT)


def test_breakers_of_the_request_keep_repetitions_apart(program: Program) -> None:
    dry = {"dry_multiplier": 50, "dry_allowed_length": 1}
    every = list(range(264))
    free = said(program, **HOT)
    assert said(program, **HOT, **dry, dry_sequence_breakers=every) == free


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"repetition_penalty": 1e300, "frequency_penalty": 1e300}, id="penalties"),
        pytest.param({"dry_multiplier": 1e300, "dry_base": 1e300}, id="dry"),
        pytest.param({"logit_bias": {str(n): -1e300 for n in range(264)}}, id="bias"),
        pytest.param({"top_n_sigma": 1e300, "repeat_last_n": 10**9}, id="widths"),
    ],
)
def test_absurd_sizes_do_no_harm(program: Program, fields: dict[str, Any]) -> None:
    status, answer = sent(program, **HOT, **fields)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 16)
