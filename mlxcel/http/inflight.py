"""The generations that are open, so that a drain can wait for them and cut what is left.

Owned by the event loop.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from mlxcel.core.errors import MlxcelError, Unavailable

SHUTDOWN = "the server is shutting down; the answer was cut off"


class Ticket:
    """One open generation, in the task that serves it."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self._reason: MlxcelError | None = None

    def cut(self, reason: MlxcelError) -> None:
        """`reason` is what the client is told."""
        if self._reason is None:
            self._reason = reason
            self._task.cancel()

    @contextmanager
    def cut_as_error(self) -> Iterator[None]:
        """Turns the cancellation by `cut` into an error the client is told; a client that
        left cancels the same task, and that stays a cancellation."""
        try:
            yield
        except asyncio.CancelledError:
            if self._reason is None:
                raise
            self._task.uncancel()
            raise self._reason from None


class InFlight:
    def __init__(self) -> None:
        self._open: set[Ticket] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.draining = asyncio.Event()
        """Set once the server takes no new work."""

    @property
    def is_draining(self) -> bool:
        return self.draining.is_set()

    @contextmanager
    def enter(self) -> Iterator[Ticket]:
        """Raises Unavailable while draining."""
        if self.is_draining:
            raise Unavailable("draining: the server is shutting down and takes no new work")
        task = asyncio.current_task()
        assert task is not None
        ticket = Ticket(task)
        self._open.add(ticket)
        self._empty.clear()
        try:
            yield ticket
        finally:
            self._open.discard(ticket)
            if not self._open:
                self._empty.set()

    async def drain(self, seconds: float, grace_s: float) -> int:
        """Refuses new work, waits for what is open, then cuts it; returns how many were cut.

        `grace_s` is what those that are cut get for telling their clients.
        """
        self.draining.set()
        if await self._wait_empty(seconds):
            return 0
        left = list(self._open)
        for ticket in left:
            ticket.cut(Unavailable(SHUTDOWN))
        await self._wait_empty(grace_s)
        return len(left)

    async def _wait_empty(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            return False
        return True
