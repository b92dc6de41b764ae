"""The listening socket: bound early, so that a taken port fails before a model is loaded."""

import errno
import socket

from mlxcel.core.errors import StartupError
from mlxcel.core.listener import SCHEME, socket_path
from mlxcel.http.unix_socket import bind_unix


def bind(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A bound socket that does not listen yet: clients are refused until it does.

    Raises StartupError that names what is taken or wrong.
    """
    path = socket_path(host, port)
    return _bind_tcp(host, port, reuse_port) if path is None else bind_unix(path)


def _bind_tcp(host: str, port: int, reuse_port: bool) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise StartupError(f"server.host = {host}: {error.strerror or error}") from error
    # One socket listens. A name with both kinds (localhost) is on IPv4, which every client tries.
    family, kind, protocol, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    sock = socket.socket(family, kind, protocol)
    try:
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _bind(sock, address)
    except OSError as error:
        sock.close()
        raise StartupError(_reason(host, port, error)) from error
    sock.setblocking(False)
    return sock


def allow_quick_restart(sock: socket.socket) -> None:
    """Connections of the listener inherit this; without it they block the port for a minute
    after the server has ended."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _bind(sock: socket.socket, address: object) -> None:
    """First without SO_REUSEADDR: two servers that both set it could both bind on Linux, and
    the loser would learn of it only when it listens, minutes later."""
    try:
        sock.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        # Perhaps only connections that linger from the last run hold the port.
        allow_quick_restart(sock)
        sock.bind(address)  # type: ignore[arg-type]


def _reason(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{host}:{port} is in use by another process; stop it, or choose another port "
            "(server.port, 0 for any free one)"
        )
    if error.errno == errno.EACCES:
        return f"no permission to listen on {host}:{port}; ports below 1024 need more rights"
    return f"cannot listen on {host}:{port}: {error.strerror} (server.host, server.port)"


def shown_address(sock: socket.socket) -> str:
    """`host:port` as it is bound, an IPv6 host in brackets; `unix:` and the path."""
    if sock.family == socket.AF_UNIX:
        return f"{SCHEME}{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
