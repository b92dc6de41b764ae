"""Keeps one worker alive: starts it, watches it, fails what was in flight, starts it again.

Knows nothing of what the worker does; `WorkerClient` is the face the rest of the front sees.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from mlxcel.core.errors import MlxcelError, StartupError
from mlxcel.core.status import ModelInfo, State
from mlxcel.link.client import WorkerClient
from mlxcel.link.messages import Fatal, Frame, FromWorker, Loading, Ready, Stop, WorkerSpec
from mlxcel.link.placement import Link, open_link
from mlxcel.link.policy import Policy

logger = logging.getLogger(__name__)

TERM_GRACE_S = 3.0
"""Between SIGTERM and SIGKILL."""
FATAL_GRACE_S = 5.0
"""For a worker that has said it cannot go on and does not end."""


class Supervisor:
    """Owned by the event loop that calls `start`; everything else is called on it too."""

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        placement: str,
        options: Mapping[str, Any],
        max_queue_depth: int,
    ) -> None:
        """`options` is the `workers` section of the tree."""
        self._policy = Policy.read(options)
        self._spec = msgspec.structs.replace(spec, beat_interval_s=self._policy.beat_interval_s)
        self._placement = placement
        self._backoff = self._policy.new_backoff()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._link: Link | None = None
        self._ready_at: float | None = None
        self._reason = ""
        self._overdue: asyncio.TimerHandle | None = None
        self._decided = asyncio.Event()
        self._start_error: Exception | None = None
        self.client = WorkerClient(spec.name, max_queue_depth=max_queue_depth)

    async def start(self) -> None:
        """Returns when the worker is ready; StartupError with its own words when it cannot be."""
        self._task = asyncio.create_task(self._run(), name=f"supervise {self._spec.name}")
        self._task.add_done_callback(self._finished)
        # The caller may be cancelled here and then call `stop`; the worker is ours until then.
        await self._decided.wait()
        if self._start_error is not None:
            raise self._start_error

    async def stop(self, deadline: float | None = None) -> bool:
        """Ends the worker, also while it loads or waits to be started again.

        `deadline` is a `time.monotonic()` value that several workers may share. Returns False
        when the worker had to be killed.
        """
        self._stopping.set()
        if self._task is None or self._task.done():
            self.client.report(state=State.STOPPED)
            return True
        self.client.report(state=State.STOPPED, detail="the server is stopping")
        self._ask()
        if await self._is_over(self._exit_patience(deadline)):
            return True
        return await self._force()

    def _ask(self) -> None:
        if self._link is None:
            return
        if self._ready_at is None:
            self._link.terminate()  # it reads no messages while it loads
        else:
            self._link.send(Stop())

    async def _force(self) -> bool:
        name = self._spec.name
        if self._link is not None:
            logger.warning("the %s worker did not end in time; terminating it", name)
            self._link.terminate()
            if await self._is_over(TERM_GRACE_S):
                return True
        if self._link is not None:
            logger.error("the %s worker ignores the request to end; killing it", name)
            self._link.kill()
        await self._is_over(TERM_GRACE_S)
        return False

    async def _is_over(self, timeout_s: float) -> bool:
        assert self._task is not None
        done, _ = await asyncio.wait({self._task}, timeout=timeout_s)
        return bool(done)

    def _exit_patience(self, deadline: float | None) -> float:
        patience_s = self._policy.exit_timeout_s
        if deadline is None:
            return patience_s
        return max(0.0, min(patience_s, deadline - time.monotonic() - TERM_GRACE_S))

    async def _run(self) -> None:
        while True:
            how, healthy_s = await self._incarnation()
            self.client.lost(how)
            if self._stopping.is_set():
                return
            if not self._decided.is_set():
                raise StartupError(f"the {self._spec.name} worker did not start: {how}")
            await self._pause(how, self._backoff.delay_after(healthy_s))
            if self._stopping.is_set():
                return

    async def _incarnation(self) -> tuple[str, float]:
        """The life of one incarnation: how it ended, and for how many seconds it was ready."""
        self._reason, self._ready_at, self._overdue = "", None, None
        try:
            link = self._link = open_link(self._placement, self._spec)
        except StartupError as error:
            return error.message, 0.0
        self.client.report(pid=link.pid)
        guard = asyncio.create_task(self._guard(link))
        guard.add_done_callback(_log_failure)
        try:
            async for message in link.messages():
                self._take(link, message)
        finally:
            guard.cancel()
            if self._overdue is not None:
                self._overdue.cancel()
            self._link = None
            link.close()
            self.client.report(pid=None)
        healthy_s = 0.0 if self._ready_at is None else time.monotonic() - self._ready_at
        return self._reason or link.how, healthy_s

    def _take(self, link: Link, message: FromWorker) -> None:
        match message:
            case Frame():
                self.client.deliver(message)
            case Loading(step=step, fraction=fraction):
                self._show_loading(step, fraction)
            case Ready(model=model):
                self._welcome(link, model)
            case Fatal(error=error):
                self._reason = error.message
                loop = asyncio.get_running_loop()
                self._overdue = loop.call_later(FATAL_GRACE_S, link.kill)

    def _show_loading(self, step: str, fraction: float | None) -> None:
        percent = "" if fraction is None else f" {fraction:.0%}"
        if not self.client.status().detail.startswith(step):
            logger.info("%s worker: %s", self._spec.name, step)
        if not self._stopping.is_set():
            self.client.report(detail=f"{step}{percent}")

    def _welcome(self, link: Link, model: ModelInfo) -> None:
        if self._stopping.is_set():
            link.send(Stop())
            return
        self._ready_at = time.monotonic()
        self.client.connect(link.send, model)
        logger.info("%s worker: ready, pid %d, %s", self._spec.name, link.pid, model.precision)
        self._decided.set()

    async def _guard(self, link: Link) -> None:
        """Kills an incarnation that does not become ready, falls silent or is stuck in a tick."""
        deadline = time.monotonic() + self._policy.start_timeout_s
        watch = self._policy.new_watch()
        while True:
            await asyncio.sleep(self._policy.beat_interval_s)
            beat, verdict = link.beat(), None
            if self._ready_at is not None:
                verdict = watch.judge(beat)
            elif time.monotonic() > deadline:
                verdict = f"not ready after {self._policy.start_timeout_s:g} s"
            if verdict is not None:
                self._reason = verdict
                logger.error("%s worker: %s; killing it", self._spec.name, verdict)
                link.kill()
                return

    async def _pause(self, how: str, delay_s: float) -> None:
        status = self.client.status()
        logger.error("%s worker: %s; starting again in %g s", self._spec.name, how, delay_s)
        self.client.report(state=State.RESTARTING, detail=how, restarts=status.restarts + 1)
        try:
            await asyncio.wait_for(self._stopping.wait(), delay_s)
        except TimeoutError:
            return

    def _finished(self, task: asyncio.Task[None]) -> None:
        """The last word of the supervision: stopped, or failed for good."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            self.client.report(state=State.STOPPED)
            error = StartupError(f"the {self._spec.name} worker was stopped before it was ready")
        else:
            self.client.report(state=State.FAILED, detail=str(error))
            if not isinstance(error, MlxcelError):
                logger.critical("supervision of %s failed", self._spec.name, exc_info=error)
        self.client.lost("its supervision ended")
        if not self._decided.is_set():
            self._start_error = error if isinstance(error, Exception) else StartupError(str(error))
            self._decided.set()


def _log_failure(task: asyncio.Task[None]) -> None:
    """A guard that fails leaves its worker unwatched: that must be seen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("%s failed; its worker is not watched", task.get_name(), exc_info=error)
