"""One request's events on their way from a worker to the reader in the front."""

import asyncio
from collections import deque
from typing import Self

from msgspec.structs import replace

from mlxcel.link.messages import RowEvent, RowFailed, RowFinished, RowTokens


class Channel:
    """Filled by the client, read by one coroutine; both on the event loop.

    Tokens that wait are merged into one event a choice, so that a slow reader costs the token
    ids and nothing more.
    """

    def __init__(self) -> None:
        self._events: deque[RowEvent] = deque()
        self._growing: dict[int, RowTokens] = {}
        """The event of each choice, among those that wait, which more of its tokens may join."""
        self._wake = asyncio.Event()
        self._ended = False

    def put(self, event: RowEvent) -> None:
        if self._ended:
            return
        if isinstance(event, RowTokens):
            self._put_tokens(event)
        else:
            self._events.append(event)
            self._growing.clear()
        self._ended = isinstance(event, RowFinished | RowFailed)
        self._wake.set()

    def close(self) -> None:
        """Nothing more comes, and what waits is not wanted: the request was cancelled."""
        self._events.clear()
        self._growing.clear()
        self._ended = True
        self._wake.set()

    @property
    def is_ready(self) -> bool:
        """`next` answers without waiting."""
        return bool(self._events) or self._ended

    async def next(self) -> RowEvent:
        """The next event; `StopAsyncIteration` after `RowFinished`, `RowFailed` or `close`."""
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        event = self._events.popleft()
        if isinstance(event, RowTokens) and self._growing.get(event.choice) is event:
            del self._growing[event.choice]
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RowEvent:
        return await self.next()

    def _put_tokens(self, event: RowTokens) -> None:
        last = self._growing.get(event.choice)
        if last is not None and last.is_forced == event.is_forced:
            last.ids.extend(event.ids)
            if last.scores is not None and event.scores is not None:
                last.scores.extend(event.scores)
            return
        # A copy, because it grows while it waits; inline, the lists may be the worker's own.
        scores = None if event.scores is None else list(event.scores)
        own = replace(event, ids=list(event.ids), scores=scores)
        self._growing[event.choice] = own
        self._events.append(own)
