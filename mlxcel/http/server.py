"""The HTTP server as a node of the plan: reserve a port, serve, drain, stop.

Lives on the caller's event loop; installs no signal handlers and starts no processes.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sanic import Sanic
from sanic.server import AsyncioServer

from mlxcel.core.errors import StartupError
from mlxcel.core.status import WorkerStatus
from mlxcel.http.app import create_app
from mlxcel.http.auth import load_keys
from mlxcel.http.deps import Deps, LiveSettings
from mlxcel.http.inflight import InFlight
from mlxcel.http.options import read_options
from mlxcel.http.sockets import allow_quick_restart, bind, shown_address

CUT_GRACE_S = 3.0
"""For the last words of streams that the deadline has cut."""
CLOSE_GRACE_S = 2.0
BACKLOG = 1024


class HttpServer:
    """Call in this order: `reserve`, `start`, `drain`, `stop`."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        settings: LiveSettings,
        statuses: Callable[[], Sequence[WorkerStatus]],
        **ports: Any,
    ) -> None:
        """`ports` are what route rows may need, by name. Raises StartupError for keys that
        cannot be read."""
        self._options = read_options(options)
        self._inflight = InFlight()
        self._deps = Deps(
            options=self._options,
            keys=load_keys(self._options.api_keys, self._options.api_key_files),
            settings=settings,
            statuses=statuses,
            inflight=self._inflight,
            ports=ports,
        )
        self._socket: socket.socket | None = None
        self._server: AsyncioServer | None = None

    @staticmethod
    def preflight(options: Mapping[str, Any]) -> None:
        """Raises StartupError for keys that cannot be read and for a port that is taken now."""
        read = read_options(options)
        load_keys(read.api_keys, read.api_key_files)
        bind(read.host, read.port).close()

    def reserve(self) -> str:
        """Binds without listening; returns the address, with the real port for port 0."""
        self._socket = bind(self._options.host, self._options.port)
        return shown_address(self._socket)

    async def start(self) -> None:
        """Listens and serves until `stop`. Raises StartupError."""
        if self._socket is None:
            self.reserve()
        assert self._socket is not None
        app = create_app(self._deps)
        self._server = await _listening(app, self._socket)

    async def drain(self, seconds: float) -> int:
        """New work is refused and /health says so; open answers may finish. What is left after
        `seconds` is told and ended; returns how many that were."""
        return await self._inflight.drain(seconds, CUT_GRACE_S)

    async def stop(self) -> None:
        """Closes the port and every connection."""
        if self._server is not None:
            await _close(self._server)
            self._server = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None


async def _listening(app: Sanic, sock: socket.socket) -> AsyncioServer:
    allow_quick_restart(sock)
    try:
        server = await app.create_server(
            sock=sock,
            backlog=BACKLOG,
            return_asyncio_server=True,
            # The routes are final only after `startup`: no client may come before.
            asyncio_server_kwargs={"start_serving": False},
        )
        assert server is not None
        await server.startup()
        await server.start_serving()
    except OSError as error:
        raise StartupError(f"cannot listen on {shown_address(sock)}: {error.strerror}") from error
    return server


async def _close(server: AsyncioServer) -> None:
    """Idle connections first; those that still write get a moment, then they are cut. Waiting
    for the listener comes last: it waits for the connections (Python 3.12)."""
    closed = server.close()
    for connection in list(server.connections):
        connection.close_if_idle()
    deadline = asyncio.get_running_loop().time() + CLOSE_GRACE_S
    while server.connections and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.02)
    for connection in list(server.connections):
        connection.abort()
    if closed is not None:
        await closed
