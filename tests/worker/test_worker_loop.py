"""The life of a worker, driven by hand."""

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.core.status import ModelInfo, WorkerStats
from mlxcel.link.messages import (
    Cancel,
    Fatal,
    Frame,
    FromWorker,
    Loading,
    Ready,
    Stop,
    ToWorker,
    WorkerSpec,
)
from mlxcel.worker.base import Progress, Worker
from mlxcel.worker.loop import Pulse, live, run

MODEL = ModelInfo(
    family="counting",
    vocab_size=1,
    context_window=0,
    train_window=1,
    hidden_size=0,
    parameters=0,
    weights_bytes=0,
    precision="none",
    device="cpu",
)
SPEC = WorkerSpec(name="chat", factory="mlxcel.worker_of_a_test:make", options={}, parts=[])
Give = Callable[[Callable[[], "Counting"]], None]


class Counting(Worker):
    """Ticks are counted; the third one fails when it is told to."""

    def __init__(self, *, setup_error: Exception | None = None, fails: bool = False) -> None:
        super().__init__({})
        self.setup_error = setup_error
        self.fails = fails
        self.ticks = 0
        self.closed = 0
        self.taken: list[ToWorker] = []

    def setup(self, parts: Mapping[str, Any], progress: Progress) -> ModelInfo:
        progress("counting to ten", 0.1)
        if self.setup_error is not None:
            raise self.setup_error
        return MODEL

    def take(self, inbox: list[ToWorker]) -> Frame | None:
        self.taken = inbox
        return None

    def tick(self, inbox: list[ToWorker]) -> tuple[Frame | None, float | None]:
        self.ticks += 1
        if self.fails and self.ticks == 3:
            raise ValueError("three")
        return Frame([], WorkerStats(waiting=len(self.taken))), 0.25

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Callable[[Counting], None]:
    module = ModuleType("mlxcel.worker_of_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def put(worker: Counting) -> None:
        module.make = lambda options: worker  # type: ignore[attr-defined]

    return put


def lives(inboxes: list[list[ToWorker]]) -> tuple[int, list[FromWorker], list[float | None]]:
    """Exit code, what was sent, and how long it was ready to sleep before each inbox."""
    sent: list[FromWorker] = []
    sleeps: list[float | None] = []
    waiting = iter(inboxes)

    def receive(timeout_s: float | None) -> list[ToWorker]:
        sleeps.append(timeout_s)
        return next(waiting)

    return run(SPEC, receive, sent.append, Pulse()), sent, sleeps


def test_a_life_from_loading_to_stop(give: Any) -> None:
    worker = Counting()
    give(worker)
    code, sent, sleeps = lives([[Cancel(id="a")], [Stop()]])
    assert code == 0
    assert sent == [
        Loading("counting to ten", 0.1),
        Frame([], WorkerStats()),  # before Ready: whoever is told so knows the slots
        Ready(MODEL),
        Frame([], WorkerStats(waiting=1)),
    ]
    assert sleeps == [0.25, 0.25]
    assert worker.closed == 1


def test_stop_is_obeyed_before_what_came_with_it(give: Any) -> None:
    worker = Counting()
    give(worker)
    lives([[Cancel(id="a"), Stop(), Cancel(id="b")]])
    assert (worker.ticks, worker.closed) == (1, 1)  # the first tick takes no messages


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        pytest.param(StartupError("too big"), "startup", "too big", id="our-own"),
        pytest.param(KeyError("k"), "worker_failed", "KeyError: 'k'", id="unexpected"),
    ],
)
def test_a_failing_setup_says_why(give: Any, error: Exception, code: str, message: str) -> None:
    give(Counting(setup_error=error))
    exit_code, sent, sleeps = lives([])
    last = sent[-1]
    assert isinstance(last, Fatal)
    assert (exit_code, last.error.code, last.error.message) == (1, code, message)
    assert sleeps == []


def test_a_failing_tick_ends_the_worker(give: Any, caplog: pytest.LogCaptureFixture) -> None:
    worker = Counting(fails=True)
    give(worker)
    code, sent, _ = lives([[], [], []])
    last = sent[-1]
    assert isinstance(last, Fatal)
    assert (code, last.error.message, worker.closed) == (1, "ValueError: three", 1)
    assert "Traceback" in caplog.text


def test_a_life_that_is_broken_off_closes_its_worker(give: Any) -> None:
    worker = Counting()
    give(worker)
    life = live(SPEC, lambda message: None, Pulse())
    next(life)
    life.close()
    assert worker.closed == 1


def test_the_pulse_shows_ticks_done_and_the_tick_that_runs() -> None:
    pulse = Pulse()
    pulse.begin()
    assert pulse.in_tick
    assert pulse.busy_s() > 0
    pulse.end()
    assert (pulse.in_tick, pulse.busy_s(), pulse.ticks) == (False, 0.0, 1)
