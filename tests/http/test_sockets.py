"""The port or socket file is taken before anything is loaded, and given back."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.http.server import HttpServer
from mlxcel.http.sockets import bind, shown_address
from tests.http.site import BODY, Start, StillSettings, server_options


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


@pytest.mark.asyncio
async def test_port_zero_is_told(start: Start) -> None:
    site = await start(port=0)
    assert int(site.address.rsplit(":", 1)[1]) > 0


@pytest.mark.asyncio
async def test_two_servers_share_a_port(start: Start) -> None:
    first = await start(reuse_port=True)
    port = int(first.address.rsplit(":", 1)[1])
    HttpServer.preflight(server_options(reuse_port=True, port=port))
    second = await start(reuse_port=True, port=port)
    await first.server.stop()
    assert (await second.http.get("/health")).status_code == 200
    with pytest.raises(StartupError, match="in use"):
        HttpServer.preflight(server_options(port=port))


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    # Where pytest puts its folders a path may be longer than a socket's may be.
    here = Path.cwd()
    os.chdir(tmp_path)
    yield Path("a.sock")
    os.chdir(here)


def unix_server(host: str, **changed: object) -> HttpServer:
    options = server_options(host=host, **changed)
    return HttpServer(options, settings=StillSettings(), statuses=lambda: [])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "port"), [("a.sock", 8080), ("a.sock", 0), ("./a", 0)], ids=["suffix", "any", "old"]
)
async def test_unix_socket(path: Path, start: Start, name: str, port: int) -> None:
    site = await start(host=name, port=port, api_keys=["k"])
    assert site.address == f"unix:{name}"
    file = Path(name)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    right = {"X-Api-Key": "k"}
    assert (await site.http.get("/health")).status_code == 200
    assert (await site.http.get("/v1/models")).status_code == 401
    response = await site.post(headers=right)
    assert response.json()["choices"][0]["message"]["content"] == "Hello"
    response = await site.post(BODY | {"stream": True}, headers=right)
    assert response.content.endswith(b"data: [DONE]\n\n")
    await site.server.stop()
    assert not file.exists()


def test_socket_of_a_server_that_died_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.exists()
    HttpServer.preflight(server_options(host=str(path)))
    assert not path.exists()


@pytest.mark.asyncio
async def test_socket_of_a_server_that_lives_is_left_alone(path: Path, start: Start) -> None:
    site = await start(host=str(path))
    with pytest.raises(StartupError, match=r"unix:a\.sock is in use by another process"):
        HttpServer.preflight(server_options(host=str(path)))
    assert (await site.http.get("/health")).status_code == 200


@pytest.mark.asyncio
async def test_stopping_leaves_the_socket_of_a_successor(path: Path) -> None:
    server = unix_server(str(path))
    server.reserve()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))
        await server.stop()
        assert path.exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("file.sock", "exists and is no socket; remove it", id="file"),
        pytest.param("folder.sock", "exists and is no socket", id="folder"),
        pytest.param("gone/a.sock", "cannot listen on unix:gone/a.sock: No such file", id="gone"),
        pytest.param("x" * 200 + ".sock", r"too long \(server\.host\)", id="long"),
    ],
)
def test_path_that_cannot_be_a_socket_is_named(path: Path, name: str, says: str) -> None:
    Path("file.sock").write_text("mine")
    Path("folder.sock").mkdir()
    with pytest.raises(StartupError, match=says):
        bind(name, 8080)
    assert Path("file.sock").read_text() == "mine"
