"""The HTTP server as a node of the plan: reserve a port, serve, drain, stop.

Lives on the caller's event loop; installs no signal handlers and starts no processes.
"""

import asyncio
import logging
import socket
import ssl
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
from mlxcel.http.metrics_port import bind_metrics, metrics_app
from mlxcel.http.options import read_options
from mlxcel.http.sockets import allow_quick_restart, bind, shown_address
from mlxcel.http.tls import load_tls
from mlxcel.http.unix_socket import SocketFile
from mlxcel.media.folders import check_folders
from mlxcel.media.rules import read_rules
from mlxcel.metrics.meter import RequestMeter
from mlxcel.metrics.scrape import Scrapes
from mlxcel.storage.open import open_store
from mlxcel.storage.transcripts import Transcripts

log = logging.getLogger(__name__)
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
        """`ports` are what route rows may need, by name. Raises StartupError for keys,
        certificates and a file of responses that cannot be used."""
        self._options = read_options(options)
        self._tls = load_tls(self._options.tls_cert, self._options.tls_key)
        self._inflight = InFlight()
        meter = RequestMeter()
        self._deps = Deps(
            options=self._options,
            keys=load_keys(self._options.api_keys, self._options.api_key_files),
            settings=settings,
            statuses=statuses,
            inflight=self._inflight,
            meter=meter,
            scrapes=Scrapes(meter),
            responses=open_store(self._options.responses, self._options.responses_file),
            transcripts=Transcripts(self._options.transcripts),
            ports=ports,
        )
        self._socket: socket.socket | None = None
        self._file: SocketFile | None = None
        self._server: AsyncioServer | None = None
        self._metrics_socket: socket.socket | None = None
        self._metrics_server: AsyncioServer | None = None

    @staticmethod
    def preflight(options: Mapping[str, Any]) -> None:
        """Raises StartupError for keys, certificates and folders that cannot be read, and for a
        port that is taken now."""
        read = read_options(options)
        load_keys(read.api_keys, read.api_key_files)
        load_tls(read.tls_cert, read.tls_key)
        for warning in check_folders(read_rules(options["media"], is_offline=False)):
            log.warning("%s", warning)
        with bind(read.host, read.port, reuse_port=read.reuse_port) as sock:
            if (file := SocketFile.of(sock)) is not None:
                file.remove()
            if (metrics := bind_metrics(read)) is not None:
                metrics.close()

    def reserve(self) -> str:
        """Binds without listening; returns the URL, with the real port for port 0."""
        options = self._options
        self._socket = bind(options.host, options.port, reuse_port=options.reuse_port)
        self._file = SocketFile.of(self._socket)
        self._metrics_socket = bind_metrics(options)
        address = shown_address(self._socket)
        if self._file is not None:
            return address
        return f"http://{address}" if self._tls is None else f"https://{address}"

    async def start(self) -> None:
        """Listens and serves until `stop`. Raises StartupError."""
        if self._socket is None:
            self.reserve()
        assert self._socket is not None
        app = create_app(self._deps)
        self._server = await _listening(app, self._socket, self._tls)
        if self._metrics_socket is not None:
            app = metrics_app(self._deps, self._metrics_socket)
            self._metrics_server = await _listening(app, self._metrics_socket, self._tls)

    async def drain(self, seconds: float) -> int:
        """New work is refused and /health says so; open answers may finish. What is left after
        `seconds` is told and ended; returns how many that were."""
        return await self._inflight.drain(seconds, CUT_GRACE_S)

    async def stop(self) -> None:
        """Closes the port and every connection, and ends what runs for nobody."""
        self._deps.streams.close()
        for server in (self._server, self._metrics_server):
            if server is not None:
                await _close(server)
        self._server = self._metrics_server = None
        for sock in (self._socket, self._metrics_socket):
            if sock is not None:
                sock.close()
        self._socket = self._metrics_socket = None
        if self._file is not None:
            self._file.remove()
            self._file = None
        self._deps.responses.close()


async def _listening(app: Sanic, sock: socket.socket, tls: ssl.SSLContext | None) -> AsyncioServer:
    allow_quick_restart(sock)
    try:
        server = await app.create_server(
            sock=sock,
            ssl=tls,
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
