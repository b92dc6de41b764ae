"""What the fuzz reads answers with, against answers that are none."""

import socket
from collections.abc import Iterator

import pytest

from tests.whole.fuzz_attacks import Attack
from tests.whole.fuzz_reader import AnswerReader, Cut, HttpAnswer, Malformed
from tests.whole.fuzz_targets import Target
from tests.whole.fuzz_verdict import verdict

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        yield ours, theirs


def read(pair: tuple[socket.socket, socket.socket], data: bytes, method: str = "GET") -> HttpAnswer:
    ours, theirs = pair
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    reader = AnswerReader(ours)
    answer = reader.read(method)
    reader.check_end()
    return answer


@pytest.mark.parametrize(
    ("data", "body"),
    [
        pytest.param(OK + b"Content-Length: 2\r\n\r\nhi", b"hi", id="length"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n",
            b"hi!",
            id="chunks",
        ),
        pytest.param(OK + b"Connection: close\r\n\r\nhi", b"hi", id="to-the-end"),
        pytest.param(b"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n", b"", id="none"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", b"", id="interim"
        ),
    ],
)
def test_answers(pair: tuple[socket.socket, socket.socket], data: bytes, body: bytes) -> None:
    assert read(pair, data).body == body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", id="version"),
        pytest.param(b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", id="no-reason"),
        pytest.param(OK + b"A b: c\r\nContent-Length: 0\r\n\r\n", id="name"),
        pytest.param(OK + b"A : c\r\nContent-Length: 0\r\n\r\n", id="space-before-colon"),
        pytest.param(OK + b"A: b\nX: y\r\nContent-Length: 0\r\n\r\n", id="bare-line-end"),
        pytest.param(OK + b"A: \x00\r\nContent-Length: 0\r\n\r\n", id="null"),
        pytest.param(OK + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n", id="twice"),
        pytest.param(OK + b"Content-Length: +0\r\n\r\n", id="signed-length"),
        pytest.param(OK + b"Content-Length: 1\r\n\r\nab", id="longer"),
        pytest.param(OK + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", id="both"),
        pytest.param(OK + b"Connection: keep-alive\r\n\r\n", id="no-end"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhix\r\n0\r\n\r\n", id="chunk"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", id="chunk-size"),
        pytest.param(
            b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", id="none-with-length"
        ),
    ],
)
def test_what_is_no_answer(pair: tuple[socket.socket, socket.socket], data: bytes) -> None:
    with pytest.raises(Malformed):
        read(pair, data)


def test_a_body_for_head_is_one_too_many(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(Malformed):
        read(pair, OK + b"Content-Length: 2\r\n\r\nhi", "HEAD")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(OK[:-1], id="head"),
        pytest.param(OK + b"Content-Length: 3\r\n\r\nhi", id="body"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", id="chunks"),
    ],
)
def test_what_is_cut(pair: tuple[socket.socket, socket.socket], data: bytes) -> None:
    with pytest.raises(Cut):
        read(pair, data)


TARGET = Target(
    row="slots",
    method="POST",
    path="/slots",
    query="",
    body={},
    fields=(),
    dialect="llama",
    handler="slots.show",
    headers=(),
)
ENVELOPE = b'{"error":{"code":400,"message":"no","type":"t"}}'


@pytest.mark.parametrize(
    ("status", "media", "body", "wrong"),
    [
        pytest.param(400, "application/json", ENVELOPE, None, id="own-shape"),
        pytest.param(404, "application/json", ENVELOPE, "no error in the shape", id="other-code"),
        pytest.param(
            400,
            "application/json",
            b'{"error":{"message":"no","type":"t","param":null,"code":null}}',
            "no error in the shape",
            id="other-dialect",
        ),
        pytest.param(400, "text/html", ENVELOPE, "an error as", id="html"),
        pytest.param(500, "application/json", ENVELOPE, "status 500", id="ours"),
        pytest.param(504, "application/json", ENVELOPE, "status 504", id="other-status"),
        pytest.param(200, "application/json", b'{"a":NaN}', "no JSON", id="nan"),
        pytest.param(200, "application/json", b'"\xff"', "no JSON", id="no-text"),
        pytest.param(
            200, "text/event-stream", b"data: {}\n\n:\n\ndata: [DONE]\n\n", None, id="sse"
        ),
        pytest.param(200, "text/event-stream", b"data: {}\n", "ends inside", id="half-frame"),
        pytest.param(200, "text/event-stream", b"data: {\n\n", "no JSON", id="broken-frame"),
        pytest.param(
            200, "text/event-stream", b'data: {"e":"internal error"}\n\n', "an internal", id="told"
        ),
    ],
)
def test_verdicts(status: int, media: str, body: bytes, wrong: str | None) -> None:
    attack = Attack(target=TARGET, pieces=(b"",), method="POST", is_plain=True)
    answer = HttpAnswer(status=status, headers={"content-type": media}, body=body)
    found = verdict(attack, "POST", answer)
    assert found == wrong or (wrong is not None and found is not None and wrong in found)
