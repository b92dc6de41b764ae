"""Notices that a row which decodes has fallen silent.

One timer a request, set anew only when it fires: an `asyncio.timeout` around every wait for a token
was a tenth of what the front does for one.
"""

import asyncio
from typing import Protocol

from mlxcel.core.errors import DecodeTimeout
from mlxcel.link.messages import RowEvent, RowFailed


class Channel(Protocol):
    """The events of one row, in order; the last is RowFinished or RowFailed."""

    @property
    def is_ready(self) -> bool:
        """`next` answers without waiting."""
        ...

    async def next(self) -> RowEvent: ...

    def put(self, event: RowEvent, /) -> None:
        """One more; nothing follows RowFinished and RowFailed."""
        ...


class Watchdog:
    """Stands between a channel and its reader. A prompt that is read or waits may be silent for
    long; a row that decodes may not."""

    def __init__(self, channel: Channel, request_id: str, limit_s: float) -> None:
        self._channel = channel
        self._id = request_id
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._since_s: float | None = None
        """When the reader began to wait for a token; None: it does not, or may wait for long."""
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def next(self, *, is_decoding: bool) -> RowEvent:
        if not is_decoding or self._channel.is_ready:
            return await self._channel.next()
        self._since_s = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s, self._look)
        try:
            return await self._channel.next()
        finally:
            self._since_s = None

    def _look(self) -> None:
        silent_s = 0.0 if self._since_s is None else self._loop.time() - self._since_s
        if silent_s >= self._limit_s:
            self._channel.put(RowFailed(self._id, DecodeTimeout(self._limit_s).info()))
        else:
            self._timer = self._loop.call_later(self._limit_s - silent_s, self._look)
