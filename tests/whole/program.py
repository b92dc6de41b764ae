"""The installed program as processes: started on a free port, watched through its log, stopped.

Every server a test starts is stopped by the test, by its own pid.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

READY = re.compile(r"front: ready on (\S+)")
LISTENING = re.compile(r"front: listening on (\S+)")


class Program:
    """`mlxcel WORDS` on an ephemeral port of loopback. Use as a context manager.

    `wait` is what `__enter__` waits for: "ready", "listening" or "exit".
    """

    def __init__(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        wait: str = "ready",
        timeout_s: float = 90.0,
    ) -> None:
        self._command = [sys.executable, "-m", "mlxcel", *words]
        if not any(w.startswith(("server.port=", "--port")) for w in words):
            self._command.append("server.port=0")
        self._env = {**os.environ, **(env or {})}
        self._wait_for = wait
        self._timeout_s = timeout_s
        self.log: list[str] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._env,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if self._wait_for == "exit":
            self.wait()
        else:
            pattern = READY if self._wait_for == "ready" else LISTENING
            self.url = self.await_log(pattern).group(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        """Everything it has logged so far."""
        return "".join(self.log)

    def await_log(self, pattern: re.Pattern[str]) -> re.Match[str]:
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            if match := pattern.search(self.text):
                return match
            if self._process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.02)
        self.stop()
        raise AssertionError(f"{pattern.pattern} did not appear in the log:\n{self.text}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code."""
        code = self._process.wait(self._timeout_s if timeout_s is None else timeout_s)
        self._reader.join(5)
        return code

    def stop(self) -> int:
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self.wait(10)
        return self._process.returncode

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)

    # HTTP, without any library: status, headers and body as they are.

    def get(self, path: str) -> tuple[int, Any]:
        return self.call("GET", path)

    def post(self, path: str, body: object) -> tuple[int, Any]:
        return self.call("POST", path, body)

    def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """(status, parsed JSON body)."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def chat(self, text: str, **fields: Any) -> dict[str, Any]:
        """A chat answer; fails the test when there is none."""
        status, answer = self.post("/v1/chat/completions", chat_body(text, **fields))
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer

    def health(self) -> dict[str, Any]:
        answer = self.get("/health")[1]
        assert isinstance(answer, dict)
        return answer

    def await_health(self, **wanted: object) -> dict[str, Any]:
        """Poll /health until its keys (dotted with __) have these values."""
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            health = self.health()
            if all(_at(health, key.split("__")) == value for key, value in wanted.items()):
                return health
            time.sleep(0.05)
        raise AssertionError(f"/health never showed {wanted}; last: {health}")


def chat_body(text: str, **fields: Any) -> dict[str, Any]:
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
    }
    return body | fields


def text_of(answer: Mapping[str, Any]) -> str:
    content = answer["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def serve_checkpoint(folder: Path, *words: str) -> Sequence[str]:
    """Words that serve a checkpoint folder."""
    return ("serve", "--model", str(folder), *words)


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
