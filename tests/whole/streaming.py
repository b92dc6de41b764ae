"""One streamed chat over a plain connection: read piece by piece, left or read to its end."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.whole.program import chat_body

DONE = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a stream ended. A body that is cut off raises instead."""

    text: str
    error: dict[str, Any] | None
    is_done: bool
    """The last frame was [DONE]."""
    reason: str | None


class Stream:
    """Opens at once. Use as a context manager: leaving it hangs up."""

    def __init__(self, url: str, text: str, **fields: Any) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        body = chat_body(text, **fields) | {"stream": True}
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self._frames = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hangs up, also in mid-stream."""
        self._response.close()
        self._connection.close()

    def pieces(self, count: int) -> str:
        """The next pieces of text; fails when the stream ends before."""
        parts: list[str] = []
        while len(parts) < count:
            frame = next(self._frames)
            assert frame != DONE, parts
            content = _content(json.loads(frame))
            if content:
                parts.append(content)
        return "".join(parts)

    def rest(self) -> Ended:
        """Reads to the end."""
        text, reason, error, last = "", None, None, ""
        for last in self._frames:
            if last == DONE:
                continue
            chunk = json.loads(last)
            error = chunk.get("error", error)
            text += _content(chunk)
            for choice in chunk.get("choices", ()):
                reason = choice["finish_reason"] or reason
        return Ended(text=text, error=error, is_done=last == DONE, reason=reason)

    def _read(self) -> Iterator[str]:
        for line in self._response:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ").decode().strip("\n")


def _content(chunk: dict[str, Any]) -> str:
    choices = chunk.get("choices")
    return choices[0]["delta"].get("content", "") if choices else ""
