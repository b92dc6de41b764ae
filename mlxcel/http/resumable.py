"""Streams that outlive their connection: the bytes of each are kept for a while, and whoever knows
its name can read them from any place on (http-native, 13).

Owned by the event loop. Knows bytes and names, no frame and no request.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any

from mlxcel.core.errors import BadRequest

log = logging.getLogger(__name__)
BUFFER_BYTES = 4 * 1024 * 1024
"""Of one stream; older bytes are dropped from the front."""
KEPT_S = 300.0
"""After the end of a stream."""
SWEEP_S = 60.0
FINISHED = 256
"""Streams that are kept after their end."""
SUFFIX = "::"

Key = tuple[str, str]
"""Owner and conversation."""


class StreamSession:
    """The bytes of one stream so far. One writes, any number reads."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.started_at = int(time.time())
        self.completed_at = 0
        """Unix seconds; 0: it still runs."""
        self.headers: dict[str, str] = {}
        """Of the answer that it began as."""
        self.refusal: Exception | None = None
        """Why there is no stream: it failed before its first frame. What it holds tells of it."""
        self._buffer = bytearray()
        self._dropped = 0
        self._ended_s: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    @property
    def is_done(self) -> bool:
        return self._ended_s is not None

    @property
    def total_bytes(self) -> int:
        """From the start, those dropped included."""
        return self._dropped + len(self._buffer)

    def age_s(self, now_s: float) -> float:
        """Since its end; 0 while it runs."""
        return 0.0 if self._ended_s is None else now_s - self._ended_s

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """`work` writes, and ends with the stream: it raises nothing but its own cancellation."""
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(lambda _: self._end())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def write(self, data: bytes) -> None:
        self._buffer += data
        excess = len(self._buffer) - BUFFER_BYTES
        if excess > 0:
            del self._buffer[:excess]
            self._dropped += excess
        self._tell()

    def check(self, offset: int) -> None:
        """Raises BadRequest for a place that is not kept any longer."""
        if offset < self._dropped:
            raise BadRequest("Stream offset lost, please restart")

    async def begun(self) -> None:
        """Until there are bytes, or the end."""
        while not self.total_bytes and not self.is_done:
            await self._news.wait()

    async def read(self, offset: int) -> AsyncIterator[bytes]:
        """What is there from `offset` on, then what comes, to the end. A reader that falls behind
        what is kept is at its end too."""
        while True:
            if offset < self._dropped:
                log.info("a reader of the stream %s fell behind: closed", self.conversation)
                return
            news = self._news
            data = bytes(self._buffer[offset - self._dropped :])
            if data:
                offset += len(data)
                yield data
            elif self.is_done:
                return
            else:
                await news.wait()

    def _end(self) -> None:
        self._ended_s = time.monotonic()
        self.completed_at = int(time.time())
        self._tell()

    def _tell(self) -> None:
        """Wakes all who wait; those who come later wait for the next."""
        self._news.set()
        self._news = asyncio.Event()


class StreamSessions:
    """All of them, by owner and conversation."""

    def __init__(self) -> None:
        self._sessions: dict[Key, StreamSession] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def open(self, owner: str, conversation: str) -> StreamSession:
        """A new one; one of the same name is cancelled and forgotten."""
        self.drop(owner, conversation)
        self.sweep()
        session = self._sessions[owner, conversation] = StreamSession(conversation)
        return session

    def find(self, owner: str, conversation: str) -> StreamSession | None:
        session = self._sessions.get((owner, conversation))
        if session is not None and session.age_s(time.monotonic()) > KEPT_S:
            return None
        return session

    def drop(self, owner: str, conversation: str) -> None:
        """Cancels and forgets; a no-op for one that is not there."""
        session = self._sessions.pop((owner, conversation), None)
        if session is not None:
            session.cancel()

    def forget(self, owner: str, session: StreamSession) -> None:
        """If it still has its name."""
        if self._sessions.get((owner, session.conversation)) is session:
            del self._sessions[owner, session.conversation]

    def named(self, owner: str, names: Iterable[str]) -> list[StreamSession]:
        """Those of the owner that are called so, or so with a suffix."""
        wanted = frozenset(names)
        now_s = time.monotonic()
        return [
            session
            for (whose, name), session in self._sessions.items()
            if whose == owner
            and (name in wanted or name.partition(SUFFIX)[0] in wanted)
            and session.age_s(now_s) <= KEPT_S
        ]

    def sweep(self) -> None:
        """Forgets what is too old or too much, now and while there is anything."""
        now_s = time.monotonic()
        ended = sorted(
            (key for key, session in self._sessions.items() if session.is_done),
            key=lambda key: self._sessions[key].age_s(now_s),
        )
        for place, key in enumerate(ended):
            if place >= FINISHED or self._sessions[key].age_s(now_s) > KEPT_S:
                del self._sessions[key]
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_again)

    def close(self) -> None:
        """Cancels what runs."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for session in self._sessions.values():
            session.cancel()
        self._sessions.clear()

    def _sweep_again(self) -> None:
        self._sweeper = None
        if self._sessions:
            self.sweep()
