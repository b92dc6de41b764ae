"""The installed program on a Unix socket, with TLS, and shared ports: what it says and serves."""

import http.client
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def health_over(path: str) -> int:
    connection = UnixConnection(path)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    return status


def test_unix_socket_is_told_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Program("model=echo", "--host", str(path), "--port", "9") as program:
        assert program.url == f"unix:{path}"
        assert health_over(str(path)) == 200
        with Program("model=echo", "--host", str(path), wait="exit") as second:
            assert f"unix:{path} is in use by another process" in second.text
        assert health_over(str(path)) == 200
    assert program.stop() == 0
    assert not path.exists()


def test_https_is_told_and_served(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    command += f" -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {cert}"
    subprocess.run(command.split(), check=True, capture_output=True)
    env = {"LLAMA_ARG_SSL_CERT_FILE": str(cert)}
    with Program("model=echo", "--ssl-key-file", str(key), env=env) as program:
        assert program.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(cert))
        with urllib.request.urlopen(f"{program.url}/health", context=trusting) as answer:
            assert answer.status == 200
    with Program("model=echo", env=env, wait="exit") as half:
        assert half.stop() == 2
        assert "give --ssl-key-file" in half.text


def test_servers_share_a_port_where_both_ask_for_it() -> None:
    with Program("model=echo", "--reuse-port") as first:
        port = first.url.rsplit(":", 1)[1]
        words = ("model=echo", "--port", port)
        with Program(*words, wait="exit") as refused:
            assert "is in use by another process" in refused.text
        with Program(*words, "--reuse-port") as second:
            assert first.stop() == 0
            assert second.health()["front"]["pid"] == second.pid
