"""The heartbeat: a thread that says, while the worker's own thread is busy, that it still is.

A tick that never returns shows in the seconds it sends; a process that is stopped or holds the
interpreter lock shows in its silence.
"""

import contextlib
import threading

import msgspec
import zmq

from mlxcel.worker.loop import Pulse


class Heart:
    def __init__(self, address: str, interval_s: float, pulse: Pulse) -> None:
        self._address = address
        self._interval_s = interval_s
        self._pulse = pulse
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        """The socket belongs to this thread alone, as zmq asks."""
        with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(self._address)
            while not self._stopped.wait(self._interval_s):
                beat = msgspec.msgpack.encode((self._pulse.ticks, self._pulse.busy_s()))
                with contextlib.suppress(zmq.Again):  # the front is busy: a later beat will do
                    socket.send(beat, zmq.NOBLOCK)
