"""One request's events on their way from a worker to the reader in the front."""

import asyncio
from collections import deque
from typing import Self

from mlxcel.link.messages import RowEvent, RowFailed, RowFinished, RowTokens


class Channel:
    """Filled by the client, read by one coroutine; both on the event loop.

    Tokens that wait are merged into one event, so that a slow reader costs the token ids and
    nothing more.
    """

    def __init__(self) -> None:
        self._events: deque[RowEvent] = deque()
        self._wake = asyncio.Event()
        self._ended = False

    def put(self, event: RowEvent) -> None:
        if self._ended:
            return
        if isinstance(event, RowTokens):
            self._put_tokens(event)
        else:
            self._events.append(event)
        self._ended = isinstance(event, RowFinished | RowFailed)
        self._wake.set()

    def close(self) -> None:
        """Nothing more comes, and what waits is not wanted: the request was cancelled."""
        self._events.clear()
        self._ended = True
        self._wake.set()

    async def next(self) -> RowEvent:
        """The next event; `StopAsyncIteration` after `RowFinished`, `RowFailed` or `close`."""
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._events.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RowEvent:
        return await self.next()

    def _put_tokens(self, event: RowTokens) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, RowTokens):
            last.ids.extend(event.ids)
        else:
            # A copy, because it grows while it waits; inline, the list may be the worker's own.
            self._events.append(RowTokens(event.id, list(event.ids)))
