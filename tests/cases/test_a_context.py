"""Public faults, A15: prompts that are too long for the context."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cases.asking import assert_error_object, opened, post_raw, prompt_tokens
from tests.cases.routes import INFILL, MARKED_ROUTES, NATIVE, Route, name_of
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
@pytest.mark.parametrize("route", MARKED_ROUTES, ids=name_of)
def test_a15_overlong_prompt_is_refused_with_both_numbers(
    small_context: Program, route: Route, asked_stream: bool
) -> None:
    """A15: an overlong prompt hung or crashed the server.

    https://github.com/vllm-project/vllm/issues/765

    Before any byte of a stream, and with the error type that the route's clients know.
    """
    window = small_context.health()["context_size"]
    assert window == CONTEXT
    body = route.body("a " * (3 * window), stream=asked_stream)
    began = time.monotonic()
    with opened(small_context, body, path=route.path) as response:
        answer = json.loads(response.read())
    assert time.monotonic() - began < 2
    assert (response.status, response.headers["Content-Type"]) == (400, "application/json")
    route.assert_refused(answer, code="context_length_exceeded", param=route.param)
    assert answer["error"]["type"] == route.long_type
    message = answer["error"]["message"]
    assert str(window) in message
    assert any(int(number) >= 6 * window for number in re.findall(r"\d+", message))


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
    routes = [MARKED_ROUTES[n % len(MARKED_ROUTES)] for n in range(8)]

    def refused(route: Route) -> int:
        return small_context.post(route.path, route.body("a " * (3 * CONTEXT)))[0]

    with ThreadPoolExecutor(9) as pool:
        long = [pool.submit(refused, route) for route in routes]
        short = pool.submit(small_context.chat, "short", max_tokens=16)
        assert text_of(short.result(10)) == alone
        assert [future.result(10) for future in long] == [400] * 8


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


@pytest.mark.parametrize("room", [-1, 0, 1, 5])
@pytest.mark.parametrize("route", [NATIVE, INFILL], ids=name_of)
def test_a15_around_the_edge_of_the_window_of_a_native_route(
    small_context: Program, route: Route, room: int
) -> None:
    """A15: what cuts an answer there is told as `truncated`."""
    frame = route.plain(small_context, "a", max_tokens=1).counts[0] - 1
    body = route.body("a" * (CONTEXT - frame - room), max_tokens=64)
    status, answer = small_context.post(route.path, body)
    if room <= 0:
        assert (status, answer["error"]["type"]) == (400, route.long_type)
        return
    assert status == 200, answer
    assert 1 <= answer["tokens_predicted"] <= room
    assert (answer["stop_type"], answer["truncated"]) == ("limit", True)
