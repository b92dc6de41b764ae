"""`python -m mlxcel.worker [NAME [LEVEL]]`: one worker, in a process of its own.

Standard input brings one line, the WorkerSpec as JSON, and then silence; its end means that
the front is gone, and so is the reason to live. NAME is there for `ps`, LEVEL for the log.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mlxcel.link.messages import WorkerSpec
from mlxcel.worker.beat import Heart
from mlxcel.worker.deferred import defer_transformers
from mlxcel.worker.identity import claim_process
from mlxcel.worker.loop import Pulse, run
from mlxcel.worker.port import SocketPort

STDIN = 0


def main(arguments: list[str]) -> int:
    claim_process()
    defer_transformers()
    spec = msgspec.json.decode(read_line(STDIN), type=WorkerSpec)
    threading.Thread(target=_end_with_front, args=(spec,), name="front", daemon=True).start()
    _set_up_logging(spec.name, arguments[1] if len(arguments) > 1 else "INFO")
    pulse = Pulse()
    port = SocketPort(spec.data_address, pulse)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front is told, and then tells us
    signal.signal(signal.SIGTERM, port.end)
    heart = Heart(spec.beat_address, spec.beat_interval_s, pulse)
    try:
        return run(spec, port.receive, port.send, pulse)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
        heart.stop()
        port.close()


def read_line(descriptor: int) -> bytes:
    """Unbuffered: the buffer's lock, held by a reading thread, is fatal at interpreter exit."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(descriptor, 65536)
        if not data:
            raise SystemExit("mlxcel.worker is started by mlxcel: no specification on stdin")
        line += data
    return bytes(line)


def _end_with_front(spec: WorkerSpec) -> None:
    while os.read(STDIN, 65536):
        pass  # it is silent; only its end means something
    sweep((spec.data_address, spec.beat_address))
    os._exit(0)


def sweep(addresses: Sequence[str]) -> None:
    """Removes the sockets and their folder, which a front that was killed leaves behind."""
    paths = [Path(address.removeprefix("ipc://")) for address in addresses]
    with contextlib.suppress(OSError):  # what is left, is left: ending matters more
        for path in paths:
            path.unlink(missing_ok=True)
        paths[0].parent.rmdir()


def _set_up_logging(name: str, level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format=f"%(asctime)s %(levelname)-7s {name}: %(message)s",
    )
    logging.getLogger("mlxcel").setLevel(level)
