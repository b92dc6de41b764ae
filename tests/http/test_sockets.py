"""The port is taken before anything is loaded, and given back."""

import socket
from typing import Any

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.http.sockets import bind, shown_address
from tests.http.site import Start


def test_a_taken_port_is_named() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(StartupError, match=f"127.0.0.1:{port} is in use"):
            bind("127.0.0.1", port)


def test_a_host_that_does_not_resolve_is_named() -> None:
    with pytest.raises(StartupError, match=r"server\.host = no\.such\.invalid"):
        bind("no.such.invalid", 0)


V4 = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::1", 0, 0, 0))


@pytest.mark.parametrize("found", [[V6, V4], [V4, V6]], ids=["v6-first", "v4-first"])
def test_a_name_with_both_kinds_is_bound_on_ipv4(
    monkeypatch: pytest.MonkeyPatch, found: list[Any]
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with bind("localhost", 0) as sock:
        assert sock.family == socket.AF_INET
        assert shown_address(sock).startswith("127.0.0.1:")


def test_port_zero_is_a_real_port() -> None:
    with bind("127.0.0.1", 0) as sock:
        assert shown_address(sock) == f"127.0.0.1:{sock.getsockname()[1]}"
        assert sock.getsockname()[1] > 0


@pytest.mark.asyncio
async def test_a_stopped_server_leaves_its_port_free(start: Start) -> None:
    """Although connections of it linger: the listener closed them first."""
    site = await start()
    reader, writer = await site.connect()
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"}")
    await site.server.stop()
    await reader.read()
    writer.close()
    port = int(site.address.rsplit(":", 1)[1])
    again = await start(port=port)
    assert (await again.http.get("/health")).status_code == 200
