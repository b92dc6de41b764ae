"""A worker in a process of its own: spawned by name, spoken to over sockets in a private folder."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import zmq
from zmq.asyncio import Context, Socket

from mlxcel.core.errors import StartupError
from mlxcel.link.messages import FromWorker, ToWorker, WorkerSpec
from mlxcel.link.watch import Beat

T = TypeVar("T")

MAX_IPC_PATH = 103 if sys.platform == "darwin" else 107  # bytes; the size of sun_path
LAST_WORDS_S = 0.1
"""What a worker wrote before it ended is in the kernel by then; this is the time to read it."""

_decode = msgspec.msgpack.Decoder(FromWorker).decode
_encode = msgspec.msgpack.Encoder().encode
_decode_beat = msgspec.msgpack.Decoder(tuple[int, float]).decode


class ProcessLink:
    """New sockets and new addresses for every incarnation: a PAIR socket takes one peer, ever."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.how = "running"
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._context = Context()
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._open(spec)
        except (OSError, zmq.ZMQError) as error:
            self.close()
            raise StartupError(f"the {spec.name} worker cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        return self._child().pid

    def send(self, message: ToWorker) -> bool:
        return _done(self._data.send(_encode(message), zmq.NOBLOCK)).exception() is None

    async def messages(self) -> AsyncIterator[FromWorker]:
        while True:
            receiving = asyncio.ensure_future(self._data.recv())
            if not receiving.done():
                either: set[asyncio.Future[Any]] = {receiving, self._gone}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                receiving.cancel()
                return
            yield _decode(receiving.result())

    def beat(self) -> Beat | None:
        newest = None
        while True:
            received = _done(self._beats.recv(zmq.NOBLOCK))
            if received.exception() is not None:
                return newest
            newest = Beat(*_decode_beat(received.result()))

    def terminate(self) -> None:
        self._child().terminate()

    def kill(self) -> None:
        self._child().kill()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            if self._process.stdin is not None:
                # Closing flushes what a dead reader has left.
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
        self._context.destroy(linger=0)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self, spec: WorkerSpec) -> None:
        self._folder = private_folder()
        self._data, data = self._bind(zmq.PAIR, "data")
        self._beats, beats = self._bind(zmq.PULL, "beat")
        spec = msgspec.structs.replace(spec, data_address=data, beat_address=beats)
        self._process = _spawn(spec)
        threading.Thread(target=self._reap, name=f"{spec.name}-reaper", daemon=True).start()

    def _bind(self, kind: int, name: str) -> tuple[Socket, str]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        # The front must never wait for a worker; admission bounds what can pile up here.
        socket.setsockopt(zmq.SNDHWM, 0)
        address = f"ipc://{self._folder}/{name}"
        socket.bind(address)
        return socket, address

    def _child(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _reap(self) -> None:
        """On a thread: a blocking wait works with every loop and needs no SIGCHLD handler."""
        code = self._child().wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(self._exited, code)

    def _exited(self, code: int) -> None:
        self.how = describe_exit(code)
        self._loop.call_later(LAST_WORDS_S, self._gone.set_result, None)


def _done(call: Awaitable[T]) -> asyncio.Future[T]:
    """With NOBLOCK the asyncio socket acts before it returns; the future only says how it went."""
    return cast("asyncio.Future[T]", call)


def private_folder() -> Path:
    """A folder of mode 0700 whose name leaves room for a socket (macOS: TMPDIR is long)."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="mlxcel-", dir=parent))
        if len(os.fsencode(folder / "data")) <= MAX_IPC_PATH:
            return folder
        folder.rmdir()
    raise StartupError(
        f"no temporary folder is short enough for a socket ({MAX_IPC_PATH} bytes); "
        "set TMPDIR to a shorter one"
    )


def describe_exit(code: int) -> str:
    """What a return code of `subprocess` says, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _log_descriptor() -> int | None:
    """Where the front's own log goes, so that a worker's lines and its native crashes go there
    too; None: the standard error they share."""
    for handler in logging.getLogger().handlers:
        stream = getattr(handler, "stream", None)
        with contextlib.suppress(AttributeError, OSError, ValueError):  # not a real file
            return int(stream.fileno())  # type: ignore[union-attr]
    return None


def _spawn(spec: WorkerSpec) -> subprocess.Popen[bytes]:
    level = logging.getLevelName(logging.getLogger("mlxcel").getEffectiveLevel())
    # -P: whatever lies in the current folder must not shadow a module.
    command = [sys.executable, "-P", "-m", "mlxcel.worker", spec.name, level]
    # A session of its own: Ctrl-C reaches the front alone, which drains before it stops workers.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=_log_descriptor(), start_new_session=True
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once: the reaper says how
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.flush()
    return process
