"""From the plan to a running server, and back to nothing: reserve, start, serve, drain, stop.

Starts everything by name. Knows ports and workers, no route, no model.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from mlxcel.core.factory import load_factory
from mlxcel.core.status import WorkerStatus
from mlxcel.graph.spec import FRONT, NodeSpec, Plan
from mlxcel.link.messages import PartSpec, WorkerSpec
from mlxcel.link.supervisor import Supervisor

log = logging.getLogger(__name__)

EXIT_FAILED = 1
HURRIED_EXIT_S = 5.0
"""What workers get to end after a second signal, before they are killed."""

T = TypeVar("T")


class Server(Protocol):
    """What provides the listener: the front node called `server`."""

    def reserve(self) -> str: ...

    async def start(self) -> None: ...

    async def drain(self, seconds: float) -> int: ...

    async def stop(self) -> None: ...


@runtime_checkable
class Closable(Protocol):
    """A front node that holds something to give back: threads, files."""

    def close(self) -> None: ...


class Runtime:
    """One server. Owned by the event loop that calls `run`."""

    def __init__(
        self, plan: Plan, *, workers: Mapping[str, Any], drain_s: float, ambient: Mapping[str, Any]
    ) -> None:
        """`workers` is that section of the tree; `ambient` holds the ports that no node
        provides, such as the live settings."""
        self._plan = plan
        self._drain_s = drain_s
        self._exit_timeout_s: float = workers["exit_timeout_s"]
        self._supervisors = {
            node.name: _supervisor(plan, node, workers)
            for node in map(plan.nodes.__getitem__, plan.order)
            if node.is_worker
        }
        self._ports = dict(ambient) | {"statuses": self.statuses}
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._front: list[object] = []

    def statuses(self) -> Sequence[WorkerStatus]:
        return [supervisor.client.status() for supervisor in self._supervisors.values()]

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT. Returns the exit code; raises StartupError."""
        began_s = time.monotonic()
        server = self._build_front()
        url = server.reserve()
        self._take_signals()
        try:
            await server.start()
            log.info("listening on %s (503 until the workers are ready)", url)
            if await self._until_stop(self._start_workers()):
                log.info("ready on %s after %.1f s", url, time.monotonic() - began_s)
                await self._stop.wait()
            await self._drain(server)
        finally:
            is_clean = await self._stop_workers()
            await server.stop()
            self._close_front()
        log.info("stopped")
        return 0 if is_clean else EXIT_FAILED

    def _build_front(self) -> Server:
        """Build the nodes of the front in plan order; the last word has the server."""
        for node in map(self._plan.nodes.__getitem__, self._plan.order):
            if node.is_worker:
                made: Any = self._supervisors[node.name].client
            elif node.worker == FRONT:
                made = self._build(node)
                self._front.append(made)
            else:
                continue
            self._ports |= dict.fromkeys((node.name, *node.provides), made)
        server: Server = self._ports["server"]
        return server

    def _build(self, node: NodeSpec) -> Any:
        ports = {p: self._ports[p] for p in (*node.needs, *node.wants) if p in self._ports}
        return load_factory(node.factory)(node.options, **ports)

    def _close_front(self) -> None:
        """Users before what they use."""
        for node in reversed(self._front):
            if isinstance(node, Closable):
                node.close()

    async def _start_workers(self) -> None:
        """One after the other, so that the peak of memory is one load."""
        for supervisor in self._supervisors.values():
            await supervisor.start()

    async def _until_stop(self, work: Any) -> bool:
        """Whether `work` ended before a signal came; its error is raised here."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            return False
        await task
        return not self._stop.is_set()

    async def _drain(self, server: Server) -> None:
        """Until open requests have ended, time is up, or a second signal comes."""
        began_s = time.monotonic()
        cut = await self._unless_hurried(server.drain(self._drain_s))
        if cut is None:
            cut = await server.drain(0)
        if cut:
            took_s = time.monotonic() - began_s
            log.warning("%d requests were cut after %.0f s of draining", cut, took_s)

    async def _stop_workers(self) -> bool:
        """False when one had to be killed."""
        ended = await self._unless_hurried(self._stop_within(self._exit_timeout_s))
        return await self._stop_within(HURRIED_EXIT_S) if ended is None else ended

    async def _stop_within(self, seconds: float) -> bool:
        """All within one shared deadline, in reverse."""
        deadline = time.monotonic() + seconds
        ended = [await s.stop(deadline) for s in reversed(self._supervisors.values())]
        return all(ended)

    async def _unless_hurried(self, work: Coroutine[Any, Any, T]) -> T | None:
        """None when a second signal came before `work` had ended; it is cancelled then."""
        task = asyncio.ensure_future(work)
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({task, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if task.done():
            return await task
        task.cancel()
        return None

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            log.warning("%s again: not waiting any longer", number.name)
            self._hurry.set()
            return
        log.info("%s: draining for up to %g s", number.name, self._drain_s)
        self._stop.set()


def _supervisor(plan: Plan, node: NodeSpec, workers: Mapping[str, Any]) -> Supervisor:
    parts = [
        PartSpec(
            name=part.name,
            factory=part.factory,
            options=dict(part.options),
            needs=list(part.needs),
            provides=list(part.provides),
        )
        for part in plan.parts_of(node.name)
    ]
    spec = WorkerSpec(name=node.name, factory=node.factory, options=dict(node.options), parts=parts)
    return Supervisor(
        spec,
        placement=workers["placement"],
        options=workers,
        max_queue_depth=node.options["max_queue_depth"],
    )
