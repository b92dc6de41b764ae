"""A worker inside the front, on a thread or on the event loop: for tests and debugging.

A crash or a hang there takes the front along, which is why `process` is the default. The
worker's code is imported by name, so that the front stays free of it in process placement.
"""

import asyncio
import contextlib
import importlib
import os
import queue
import threading
from collections.abc import AsyncIterator
from typing import Any

from mlxcel.link.messages import FromWorker, Stop, ToWorker, WorkerSpec
from mlxcel.link.watch import Beat

LOOP = "mlxcel.worker.loop"
MLX_THREAD = "mlxcel.worker.mlx_thread"

Outbox = asyncio.Queue[FromWorker | None]
"""None: the worker has ended."""


class ThreadLink:
    """The loop is woken once per message, and a tick sends at most one."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.pid = os.getpid()
        self.how = "running"
        self._loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[ToWorker] = queue.SimpleQueue()
        self._outbox: Outbox = asyncio.Queue()
        self._pulse: Any = importlib.import_module(LOOP).Pulse()
        self._must_end = False
        threading.Thread(target=self._live, args=(spec,), name=spec.name, daemon=True).start()

    def send(self, message: ToWorker) -> bool:
        self._inbox.put(message)
        return True

    def messages(self) -> AsyncIterator[FromWorker]:
        return _until_none(self._outbox)

    def beat(self) -> Beat:
        return Beat(self._pulse.ticks, self._pulse.busy_s())

    def terminate(self) -> None:
        self._must_end = True
        self._inbox.put(Stop())

    def kill(self) -> None:
        self.terminate()
        self.how = "abandoned: a thread cannot be killed"
        self._outbox.put_nowait(None)

    def close(self) -> None:
        self.terminate()

    def _live(self, spec: WorkerSpec) -> None:
        how = "told to end"
        try:
            run = importlib.import_module(MLX_THREAD).run
            how = f"exit code {run(spec, self._receive, self._post, self._pulse)}"
        finally:
            self._call(self._ended, how)

    def _receive(self, timeout_s: float | None) -> list[ToWorker]:
        messages: list[ToWorker] = []
        with contextlib.suppress(queue.Empty):
            if timeout_s != 0:
                messages.append(self._inbox.get(timeout=timeout_s))
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def _post(self, message: FromWorker) -> None:
        if self._must_end:
            raise SystemExit(0)
        if not self._call(self._outbox.put_nowait, message):
            raise SystemExit(0)

    def _call(self, function: Any, argument: object) -> bool:
        """Calls a function on the event loop; False when the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            return False
        return True

    def _ended(self, how: str) -> None:
        if self.how == "running":
            self.how = how
        self._outbox.put_nowait(None)


class InlineLink:
    """A task that ticks between two turns of the loop. Loading blocks the loop."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.pid = os.getpid()
        self.how = "running"
        self._inbox: list[ToWorker] = []
        self._wake = asyncio.Event()
        self._outbox: Outbox = asyncio.Queue()
        self._task = asyncio.create_task(self._live(spec), name=spec.name)
        # Not in a `finally` of the task: one that is cancelled before its first turn has none.
        self._task.add_done_callback(lambda _: self._outbox.put_nowait(None))

    def send(self, message: ToWorker) -> bool:
        self._inbox.append(message)
        self._wake.set()
        return not self._task.done()

    def messages(self) -> AsyncIterator[FromWorker]:
        return _until_none(self._outbox)

    def beat(self) -> Beat:
        # Whoever asks runs on the same loop, so no tick is running.
        return Beat(0, 0.0)

    def terminate(self) -> None:
        self._task.cancel()

    def kill(self) -> None:
        self._task.cancel()

    def close(self) -> None:
        self._task.cancel()

    async def _live(self, spec: WorkerSpec) -> None:
        loop: Any = importlib.import_module(LOOP)
        life = loop.live(spec, self._outbox.put_nowait, loop.Pulse())
        self.how = "told to end"
        try:
            sleep_s = next(life)
            while True:
                sleep_s = life.send(await self._receive(sleep_s))
        except StopIteration as end:
            self.how = f"exit code {end.value}"
        finally:
            life.close()

    async def _receive(self, timeout_s: float | None) -> list[ToWorker]:
        if timeout_s == 0 or self._inbox:
            await asyncio.sleep(0)  # the rest of the front has its turn
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), timeout_s)
        messages, self._inbox = self._inbox, []
        self._wake.clear()
        return messages


async def _until_none(outbox: Outbox) -> AsyncIterator[FromWorker]:
    while (message := await outbox.get()) is not None:
        yield message
