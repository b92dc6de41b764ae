"""Public faults, A15: prompts that are too long for the context."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cases.asking import assert_error_object, post_raw, prompt_tokens
from tests.whole.program import Program, chat_body, serve_checkpoint, text_of

pytestmark = pytest.mark.whole

CONTEXT = 512
"""Tokens of a slot, one for each byte; far below the model's own window."""


@pytest.fixture(scope="module")
def small_context(long_folder: Path) -> Iterator[Program]:
    with Program(*serve_checkpoint(long_folder, "--ctx-size", str(4 * CONTEXT))) as program:
        yield program


def _overlong(window: int, **fields: Any) -> dict[str, Any]:
    return chat_body("a " * (3 * window), **fields)


@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
def test_a15_overlong_prompt_is_refused_with_both_numbers(
    small_context: Program, asked_stream: bool
) -> None:
    """A15: an overlong prompt hung or crashed the server.

    https://github.com/vllm-project/vllm/issues/765
    """
    window = small_context.health()["context_size"]
    assert window == CONTEXT
    began = time.monotonic()
    status, kind, answer = post_raw(small_context, _overlong(window, stream=asked_stream))
    assert time.monotonic() - began < 2
    assert (status, kind) == (400, "application/json")
    assert_error_object(answer, code="context_length_exceeded", param="messages")
    message = answer["error"]["message"]
    assert str(window) in message
    assert any(int(word) >= 6 * window for word in message.split() if word.isdigit())


def test_a15_the_models_own_window_is_a_limit_too(tiny_server: Program) -> None:
    """A15: without `ctx_size` the window is the one the model was trained for."""
    window = tiny_server.get("/v1/models")[1]["data"][0]["meta"]["n_ctx_train"]
    assert window > 0
    status, _, answer = post_raw(tiny_server, _overlong(window))
    assert status == 400
    assert_error_object(answer, code="context_length_exceeded")
    assert str(window) in answer["error"]["message"]


def test_a15_eight_at_once_leave_a_short_one_alone(small_context: Program) -> None:
    """A15: also 8 at once with one short request beside them."""
    alone = text_of(small_context.chat("short", max_tokens=16))
    with ThreadPoolExecutor(9) as pool:
        long = [pool.submit(post_raw, small_context, _overlong(CONTEXT)) for _ in range(8)]
        short = pool.submit(small_context.chat, "short", max_tokens=16)
        assert text_of(short.result(10)) == alone
        assert [future.result(10)[0] for future in long] == [400] * 8


@pytest.mark.parametrize("room", [-1, 0, 1, 2, 5])
def test_a15_around_the_edge_of_the_window(small_context: Program, room: int) -> None:
    """A15: every prompt length near the window is either refused or answered within it."""
    frame = prompt_tokens(small_context, chat_body("a", max_tokens=1)) - 1
    text = "a" * (CONTEXT - frame - room)
    status, _, answer = post_raw(small_context, chat_body(text, max_tokens=64))
    if room <= 0:
        assert status == 400
        assert_error_object(answer, code="context_length_exceeded")
        return
    assert status == 200, answer
    assert answer["usage"]["total_tokens"] <= CONTEXT
    assert answer["usage"]["completion_tokens"] >= 1
    assert answer["choices"][0]["finish_reason"] == "length"
