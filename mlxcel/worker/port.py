"""A worker process's side of the link: messages in, messages out, and the wish to end."""

import math
from typing import Any

import msgspec
import zmq

from mlxcel.link.messages import FromWorker, Stop, ToWorker
from mlxcel.worker.loop import Pulse

LINGER_MS = 1000
"""How long the last message may take to leave; the front reads it even after the exit."""

_decode = msgspec.msgpack.Decoder(ToWorker).decode
_encode = msgspec.msgpack.Encoder().encode


class SocketPort:
    """Used on the main thread alone, where signals arrive as well."""

    def __init__(self, address: str, pulse: Pulse) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.connect(address)
        self._pulse = pulse
        self._must_end = False

    def receive(self, timeout_s: float | None) -> list[ToWorker]:
        if self._must_end:
            return [Stop()]
        if timeout_s != 0:
            self._socket.poll(None if timeout_s is None else math.ceil(timeout_s * 1000))
        messages: list[ToWorker] = []
        while (data := self._take()) is not None:
            messages.append(_decode(data))
        return messages

    def send(self, message: FromWorker) -> None:
        self._socket.send(_encode(message))

    def end(self, signum: int, frame: Any) -> None:
        """Handles SIGTERM: at once between ticks and while loading, else after the tick."""
        if self._pulse.in_tick:
            self._must_end = True
        else:
            raise SystemExit(0)

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def _take(self) -> bytes | None:
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None
