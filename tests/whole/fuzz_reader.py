"""A strict reader of HTTP/1.1 answers (RFC 9112): whatever a lenient client would forgive is an
error here. Knows bytes and headers, nothing of JSON."""

import re
import socket
from dataclasses import dataclass

STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [\x21-\x7e][\x20-\x7e]*")
HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?((?:[\x21-\x7e\x80-\xff ]|\t)*)")
CHUNK_LINE = re.compile(rb"[0-9a-fA-F]{1,8}")
ONCE = frozenset({"content-length", "transfer-encoding", "content-type", "connection"})
MOST_HEAD_BYTES = 65_536
BODILESS = frozenset({204, 304})


class Malformed(AssertionError):
    """An answer, but none that HTTP knows."""


class Cut(Exception):
    """The connection ended before the answer did. `seen`: how many bytes of it there were."""

    def __init__(self, seen: int, how: str) -> None:
        super().__init__(f"{how} after {seen} bytes of an answer")
        self.seen = seen


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0]

    @property
    def stays_open(self) -> bool:
        return self.headers.get("connection", "").lower() == "keep-alive"


class AnswerReader:
    """Reads answers one after the other from a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._taken = 0
        self._ending = ""

    def read(self, method: str, *, version: str = "1.1") -> HttpAnswer:
        """The final answer; interim ones (100) before it are checked and passed over.
        Raises Malformed, or Cut."""
        while True:
            self._taken = 0
            status, headers = self._head()
            if status != 100:
                return HttpAnswer(
                    status=status,
                    headers=headers,
                    body=self._body(method, version, status, headers),
                )
            if headers:
                raise Malformed(f"an interim answer with headers: {headers}")

    def interim(self) -> int:
        """The status of the next head, which stays there to be read; nothing else is looked at."""
        while b"\r\n" not in self._buffer:
            self._more()
        return int(bytes(self._buffer[9:12]))

    def check_end(self) -> None:
        """Raises Malformed unless the connection ends without another byte."""
        while not self._buffer:
            try:
                self._more()
            except Cut:
                return
        raise Malformed(f"bytes behind the last answer: {bytes(self._buffer[:200])!r}")

    def _head(self) -> tuple[int, dict[str, str]]:
        line, *lines = self._until(b"\r\n\r\n", MOST_HEAD_BYTES).split(b"\r\n")
        found = STATUS_LINE.fullmatch(line)
        if found is None:
            raise Malformed(f"status line {line!r}")
        headers: dict[str, str] = {}
        for text in lines:
            self._add(headers, text)
        return int(found[1]), headers

    def _add(self, headers: dict[str, str], line: bytes) -> None:
        found = HEADER_LINE.fullmatch(line)
        if found is None:
            raise Malformed(f"header line {line!r}")
        name, value = found[1].decode("ascii").lower(), found[2].decode("latin-1").strip(" \t")
        if name in headers and name in ONCE:
            raise Malformed(f"{name} twice: {headers[name]!r} and {value!r}")
        headers[name] = value

    def _body(self, method: str, version: str, status: int, headers: dict[str, str]) -> bytes:
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if length is not None and coding is not None:
            raise Malformed("a length and a transfer encoding")
        if status in BODILESS or status < 200:
            if length is not None or coding is not None:
                raise Malformed(f"{status} with a body")
            return b""
        if length is not None and not (length.isascii() and length.isdigit()):
            raise Malformed(f"content-length {length!r}")
        if coding is not None and (coding != "chunked" or version == "1.0"):
            raise Malformed(f"transfer-encoding {coding!r} for HTTP/{version}")
        if method == "HEAD":
            return b""
        if coding is not None:
            return self._chunks()
        if length is not None:
            return self._exactly(int(length))
        if headers.get("connection") != "close":
            raise Malformed("a body without an end")
        return self._all()

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            line = self._until(b"\r\n", 64)
            if CHUNK_LINE.fullmatch(line) is None:
                raise Malformed(f"chunk line {line!r}")
            size = int(line, 16)
            parts.append(self._exactly(size))
            if self._exactly(2) != b"\r\n":
                raise Malformed("a chunk that is longer than it says")
            if size == 0:
                return b"".join(parts)

    def _until(self, mark: bytes, most: int) -> bytes:
        while (at := self._buffer.find(mark)) < 0:
            if len(self._buffer) > most:
                raise Malformed(f"no {mark!r} in {bytes(self._buffer[:100])!r}")
            self._more()
        return self._take(at + len(mark))[: -len(mark)]

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        return self._take(size)

    def _all(self) -> bytes:
        while not self._ending:
            try:
                self._more()
            except Cut:
                if self._ending != "closed":
                    raise
        return self._take(len(self._buffer))

    def _take(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._taken += size
        return data

    def _more(self) -> None:
        """Raises Cut at the end of the connection; waiting too long is a failure of its own."""
        try:
            data = self._sock.recv(65_536)
            self._ending = "" if data else "closed"
        except ConnectionError as error:
            self._ending = type(error).__name__
            data = b""
        if not data:
            raise Cut(self._taken + len(self._buffer), self._ending)
        self._buffer += data
