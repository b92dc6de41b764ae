"""The processes that are measured: HTTP servers, and the bare loop."""

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent
START_TIMEOUT_S = 180


def our_command(checkpoint: Path) -> list[str]:
    return [
        sys.executable, "-m", "mlxcel", "serve", "--model", str(checkpoint),
        "live.sampling.temperature=0",
    ]  # fmt: skip


def peer_command(checkpoint: Path) -> list[str]:
    return [sys.executable, str(HERE / "bench_peer.py"), "--model", str(checkpoint)]


class HttpServer:
    """A server on a free loopback port, ready when /health (or /v1/models) answers 200."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [*self._command, "--port", str(port)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.pid = self._process.pid
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise SystemExit(f"{' '.join(self._command)} ended by itself")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.3)
        raise SystemExit(f"{' '.join(self._command)} is not ready after {START_TIMEOUT_S} s")


class BareLoop:
    """`bench_bare.py`: answers a line `ROWS STEPS` with tokens a second."""

    def __init__(self, checkpoint: Path) -> None:
        self._command = [sys.executable, str(HERE / "bench_bare.py"), str(checkpoint)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def rate(self, rows: int, steps: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{rows} {steps}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())
