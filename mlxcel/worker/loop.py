"""The life of a worker in every placement: build, be ready, tick until told to stop.

Knows nothing of sockets, threads or event loops: whoever drives it brings the messages.
"""

import gc
import logging
import time
from collections.abc import Callable, Generator

from mlxcel.core.errors import ErrorInfo, MlxcelError
from mlxcel.link.messages import Fatal, FromWorker, Loading, Ready, Stop, ToWorker, WorkerSpec
from mlxcel.worker.base import Worker
from mlxcel.worker.build import build

logger = logging.getLogger(__name__)

Send = Callable[[FromWorker], None]
Receive = Callable[[float | None], list[ToWorker]]
"""Waits up to that many seconds for a message (None: for ever), then takes all there are."""
Life = Generator[float | None, list[ToWorker], int]
"""Yields how long it may sleep, takes the inbox, returns the exit code."""


class Pulse:
    """What a beat tells. Written by the worker's thread alone, read by any."""

    def __init__(self) -> None:
        self.ticks = 0
        self._began: float | None = None

    @property
    def in_tick(self) -> bool:
        return self._began is not None

    def begin(self) -> None:
        self._began = time.monotonic()

    def end(self) -> None:
        self._began = None
        self.ticks += 1

    def busy_s(self) -> float:
        """How long the tick that is running has run; 0 between ticks."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began


def live(spec: WorkerSpec, send: Send, pulse: Pulse) -> Life:
    """A generator, so that a blocking driver and an asyncio driver share this one body."""
    worker: Worker | None = None
    try:
        worker, model = build(spec, lambda step, fraction: send(Loading(step, fraction)))
        # Before anybody counts on it: how many slots there are stands in the first frame.
        sleep_s: float | None = _turn(worker, [], send, pulse)
        send(Ready(model))
        # What was loaded stays: no later collection has to walk it between two ticks.
        gc.collect()
        gc.freeze()
        while not _says_stop(inbox := (yield sleep_s)):
            sleep_s = _turn(worker, inbox, send, pulse)
    except Exception as error:  # the worker's loop is one of the borders
        _log(spec.name, error, was_ready=worker is not None)
        send(Fatal(explain(error)))
        return 1
    finally:
        if worker is not None:
            worker.close()
    return 0


def run(spec: WorkerSpec, receive: Receive, send: Send, pulse: Pulse) -> int:
    """The blocking driver: returns the exit code."""
    life = live(spec, send, pulse)
    try:
        sleep_s = next(life)
        while True:
            sleep_s = life.send(receive(sleep_s))
    except StopIteration as end:
        return int(end.value)
    finally:
        life.close()


def explain(error: Exception) -> ErrorInfo:
    if isinstance(error, MlxcelError):
        return error.info()
    return ErrorInfo(code="worker_failed", status=500, message=f"{type(error).__name__}: {error}")


def _turn(worker: Worker, inbox: list[ToWorker], send: Send, pulse: Pulse) -> float | None:
    pulse.begin()
    try:
        if inbox and (early := worker.take(inbox)) is not None:
            send(early)
        frame, sleep_s = worker.tick([])
    finally:
        pulse.end()
    if frame is not None:
        send(frame)
    return sleep_s


def _says_stop(inbox: list[ToWorker]) -> bool:
    return any(isinstance(message, Stop) for message in inbox)


def _log(name: str, error: Exception, *, was_ready: bool) -> None:
    if isinstance(error, MlxcelError) and not was_ready:
        logger.error("the %s worker cannot start: %s", name, error)  # says what to do by itself
    else:
        logger.exception("the %s worker cannot go on", name)
