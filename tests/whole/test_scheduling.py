"""Slots, lanes, bounds and admission as clients meet them (scheduler contract, section 17)."""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from tests.cases.asking import (
    CHAT,
    assert_error_object,
    assert_serves,
    await_active,
    await_idle,
    opened,
)
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.tiny.families import NEMOTRON_H, network_of
from tests.whole.program import Program, chat_body, serve_checkpoint, text_of
from tests.whole.test_openai_sdk import ask, sdk

pytestmark = pytest.mark.whole

DEPTH = 32
ENDLESS = 30_000
WINDOW = 32_768


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_checkpoint(tmp_path_factory.mktemp("wide") / "tiny-wide", window=WINDOW)


def refused(program: Program, body: Mapping[str, Any]) -> tuple[int, str, Any]:
    """(status, content type, error object) of what gets no answer."""
    with opened(program, body) as response:
        return response.status, response.headers["Content-Type"], json.loads(response.read())


# Slots


def test_a_family_that_cannot_batch_has_one_slot(tmp_path: Path) -> None:
    folder = build_tiny_checkpoint(tmp_path / "hybrid")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | NEMOTRON_H))
    weights = dict(tree_flatten(network_of(NEMOTRON_H).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    with Program(*serve_checkpoint(folder, "scheduler.parallel=4")) as program:
        batch = program.health()["batch"]
        assert batch["max_batch_size"] == 1
        assert "scheduler.parallel 4 -> 1: " in program.text
        answer = program.chat("hi", max_tokens=8)
        assert answer["usage"]["completion_tokens"] == 8


def test_eight_choices_on_four_slots(tiny_server: Program) -> None:
    """Through the official client, in one piece and as a stream: the same eight."""
    client = sdk(tiny_server)
    fields = {"n": 8, "seed": 3, "temperature": 1.0, "max_tokens": 24}
    answer = ask(client, "eight", **fields)
    assert [choice.index for choice in answer.choices] == list(range(8))
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 8
    assert answer.usage.completion_tokens == 8 * 24
    said = [""] * 8
    reasons: dict[int, str] = {}
    for chunk in ask(client, "eight", stream=True, **fields):
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
            if choice.finish_reason is not None:
                assert choice.index not in reasons
                reasons[choice.index] = choice.finish_reason
    assert said == texts
    assert reasons == dict.fromkeys(range(8), "length")


def test_nine_choices_are_refused(tiny_server: Program) -> None:
    status, _, answer = refused(tiny_server, chat_body("nine", n=9))
    assert status == 400
    assert_error_object(answer, param="n")


# Queue


@pytest.mark.parametrize("engine", ["echo", "mlx"])
def test_the_33rd_in_a_queue_of_32_is_refused_without_a_stream(engine: str, wide: Path) -> None:
    words = ("model=echo", "engine.delay_ms=100") if engine == "echo" else serve_checkpoint(wide)
    bounds = ("scheduler.parallel=1", f"scheduler.max_queue_depth={DEPTH}")
    long = chat_body("long " * 100, max_tokens=ENDLESS, stream=True)
    with Program(*words, *bounds) as program, ExitStack() as rows:
        running = [rows.enter_context(opened(program, long)) for _ in range(1 + DEPTH)]
        assert {response.status for response in running} == {200}
        await_active(program, 1, waiting=DEPTH)
        for streamed in (True, False):
            status, kind, answer = refused(program, chat_body("33rd", stream=streamed))
            assert (status, kind) == (503, "application/json")
            assert_error_object(answer)
            assert answer["error"]["type"] == "server_busy"
            assert answer["error"]["message"] == "All slots are busy. Please try again later."
        assert program.health()["batch"]["queue_depth"] == DEPTH
        rows.close()
        await_idle(program, 5.0)
        assert_serves(program)


# Watchdog


@pytest.mark.slow
def test_a_stuck_row_is_cancelled_and_others_go_on() -> None:
    """Each row has the bound that was set when it came: a later PATCH is for later rows."""
    with Program("model=echo", "engine.delay_ms=1500") as program:
        assert program.call("PATCH", "/v1/settings", {"timeout_seconds": 1})[0] == 200
        stuck: list[tuple[int, Any]] = []
        thread = threading.Thread(target=lambda: stuck.append(program.post(CHAT, chat_body("ab"))))
        thread.start()
        await_active(program, 1)
        assert program.call("PATCH", "/v1/settings", {"timeout_seconds": 30})[0] == 200
        assert text_of(program.chat("ab")) == "ab"
        thread.join(5)
        ((status, answer),) = stuck
        assert (status, answer["error"]["type"]) == (504, "server_timeout")
        await_idle(program, 2.0)


# Preemption


class Timed(threading.Thread):
    """One stream in a lane: its text and when each piece of it came."""

    def __init__(self, program: Program, text: str, lane: str, max_tokens: int) -> None:
        super().__init__(daemon=True)
        body = chat_body(text, max_tokens=max_tokens, stream=True)
        host, _, port = program.url.removeprefix("http://").partition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=60)
        headers = {"Content-Type": "application/json", "X-Priority": lane}
        self._connection.request("POST", CHAT, json.dumps(body), headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        self.text = ""
        self.reason: str | None = None
        self.times: list[float] = []
        self.start()

    def run(self) -> None:
        for line in self._response:
            if not line.startswith(b"data: {"):
                continue
            (choice,) = json.loads(line.removeprefix(b"data: "))["choices"]
            self.reason = choice["finish_reason"]
            if piece := choice["delta"].get("content"):
                self.text += piece
                self.times.append(time.monotonic())
        self._connection.close()

    def await_pieces(self, count: int) -> None:
        deadline = time.monotonic() + 30
        while len(self.times) < count:
            assert time.monotonic() < deadline, f"{len(self.times)} of {count} pieces"
            time.sleep(0.005)

    def pieces_within(self, start: float, end: float) -> int:
        return sum(start <= moment <= end for moment in self.times)


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    """What rows say alone, under whatever policy."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "lanes", "victim"),
    [
        pytest.param("longest-first", ("normal", "Normal"), "long", id="longest-first"),
        pytest.param("lowest-priority", ("normal", " LOW "), "short", id="lowest-priority"),
    ],
)
def test_a_high_request_drives_out_the_right_row(
    wide: Path, alone: dict[str, str], policy: str, lanes: tuple[str, str], victim: str
) -> None:
    """Nobody's text changes: the victim only pauses while the high request is answered."""
    words = (
        "scheduler.parallel=2",
        "scheduler.preemption.enabled=true",
        f"scheduler.preemption.policy={policy}",
    )
    limits = {"long": 1500, "short": 1200, "high": 200}
    with Program(*serve_checkpoint(wide, *words)) as program:
        for name, count in limits.items():
            alone[name] = alone.get(name) or text_of(program.chat(name, max_tokens=count))
        rows = {"long": Timed(program, "long", lanes[0], limits["long"])}
        rows["long"].await_pieces(100)
        rows["short"] = Timed(program, "short", lanes[1], limits["short"])
        rows["short"].await_pieces(20)
        rows["high"] = Timed(program, "high", "high", limits["high"])
        for row in rows.values():
            row.join(60)
        assert {name: row.text for name, row in rows.items()} == alone
        assert {row.reason for row in rows.values()} == {"length"}
        during = (rows["high"].times[0], rows["high"].times[-1])
        pieces = {name: rows[name].pieces_within(*during) for name in ("long", "short")}
        paused, (other,) = pieces.pop(victim), pieces.values()
        assert other > 100
        assert paused < other / 10
        await_idle(program, 2.0)
        assert program.health()["observability"]["preemptions"] == 1


def test_without_preemption_lanes_order_the_queue_alone(wide: Path) -> None:
    """Low, normal, high, normal: high first, then both normal in their order, then low."""
    with Program(*serve_checkpoint(wide, "scheduler.parallel=1")) as program:
        first = Timed(program, "first", "low", 600)
        first.await_pieces(5)
        lanes = ("low", "normal", "HIGH", "unheard-of")
        waiting = [Timed(program, lane, lane, 5) for lane in lanes]
        for row in (first, *waiting):
            row.join(60)
        order = sorted(waiting, key=lambda row: row.times[0])
        assert first.times[-1] <= order[0].times[0]
        assert [lanes[waiting.index(row)] for row in order] == [
            "HIGH", "normal", "unheard-of", "low",
        ]  # fmt: skip


# Memory


@pytest.fixture(scope="module")
def guarded(wide: Path) -> Iterator[Program]:
    with Program(*serve_checkpoint(wide, "limits.request_memory_budget=8388608")) as program:
        yield program


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "plain"])
def test_what_does_not_fit_into_memory_is_refused_before_a_stream(
    guarded: Program, streamed: bool
) -> None:
    """First the context (400), then memory (503), then work; a small request is served."""
    began = guarded.health()["observability"]["sequences_started"]
    overlong = chat_body("x" * WINDOW, stream=streamed)
    status, kind, answer = refused(guarded, overlong)
    assert (status, kind) == (400, "application/json")
    assert_error_object(answer, code="context_length_exceeded", param="messages")
    for large in (
        chat_body("x" * (WINDOW - 100), stream=streamed, max_tokens=1),
        chat_body("x", stream=streamed, max_tokens=ENDLESS),
    ):
        status, kind, answer = refused(guarded, large)
        assert (status, kind) == (503, "application/json")
        assert_error_object(answer)
        assert answer["error"]["type"] == "request_memory_budget_exceeded"
    assert guarded.health()["observability"]["sequences_started"] == began
    assert_serves(guarded)
