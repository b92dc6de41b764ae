"""Fetching from servers on loopback, which a judge of the test takes for public."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore2
import pytest
import pytest_asyncio

from mlxcel.media.dial import CheckedBackend
from mlxcel.media.fetch import Fetcher
from mlxcel.media.rules import MediaRefused, MediaRules, read_rules
from mlxcel.media.source import read_media

pytestmark = pytest.mark.asyncio
PUBLIC, PRIVATE = "127.0.0.1", "127.0.0.2"
LIMIT = 1000


class Web:
    """A server that answers by path, and keeps the heads of what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.pages: dict[str, bytes] = {}
        self.heads: list[str] = []
        self.gate: asyncio.Event | None = None

    def url(self, path: str = "/", host: str = PUBLIC) -> str:
        return f"http://{host}:{self.port}{path}"

    def page(self, path: str, body: bytes, status: str = "200 OK", head: str = "") -> None:
        lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n"
        self.pages[path] = lines.encode() + body

    def redirect(self, path: str, to: str, status: int = 302) -> None:
        self.page(path, b"", f"{status} Moved", f"Location: {to}\r\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            writer.write(self.pages[head.split(" ")[1]])
            await writer.drain()
            if self.gate is not None:
                await self.gate.wait()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def served(tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    web = Web()
    server = await asyncio.start_server(web.serve, PUBLIC, 0, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    yield web
    if web.gate is not None:
        web.gate.set()
    server.close()


@pytest_asyncio.fixture
async def web() -> AsyncIterator[Web]:
    async with served() as web:
        web.page("/cat.png", b"cat")
        yield web


def is_taken_for_public(address: str) -> bool:
    return address == PUBLIC


def names(*answers: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver with one answer for each question; it knows no more."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        if not left:
            raise OSError("no such name")
        return left.pop(0)

    return resolve


def fetcher(*answers: Sequence[str], **more: Any) -> Fetcher:
    return Fetcher(judge=is_taken_for_public, resolver=names(*answers), **more)


async def refusal(source: Fetcher, url: str, limit: int = LIMIT) -> str:
    with pytest.raises(MediaRefused) as caught:
        await source.get(url, limit)
    assert caught.value.status == 400
    return caught.value.message


async def test_bytes_by_address_and_by_name(web: Web) -> None:
    assert await fetcher().get(web.url("/cat.png"), LIMIT) == b"cat"
    assert await fetcher([PUBLIC]).get(web.url("/cat.png", "cats.example"), LIMIT) == b"cat"
    assert f"Host: cats.example:{web.port}\r\n" in web.heads[1]
    assert "Accept-Encoding: identity\r\n" in web.heads[1]


async def test_loopback_is_refused_as_it_stands(web: Web) -> None:
    """Without the judge of the tests."""
    said = await refusal(Fetcher(), web.url("/cat.png"))
    assert said == "media URL host 127.0.0.1 is not a public address"
    assert "localhost is not a public" in await refusal(Fetcher(), web.url("/", "localhost"))
    assert web.heads == []


async def test_metadata_of_clouds_is_refused_in_the_words_of_the_contract() -> None:
    said = await refusal(Fetcher(), "http://169.254.169.254/latest/meta-data")
    assert said == "media URL host 169.254.169.254 is not a public address"


async def test_number_that_resolvers_read_as_an_address_is_judged_as_one(web: Web) -> None:
    for host in ("2130706433", "0x7f.1", "127.1", "0177.0.0.1"):
        assert "is not a public address" in await refusal(Fetcher(), web.url("/", host))
    assert web.heads == []


async def test_switch_opens_private_addresses_and_nothing_else(web: Web) -> None:
    opened = Fetcher(allow_private=True)
    assert await opened.get(web.url("/cat.png"), LIMIT) == b"cat"
    assert "holds a user" in await refusal(opened, f"http://u:p@127.0.0.1:{web.port}/")
    assert "neither" in await refusal(opened, "ftp://127.0.0.1/")


async def test_offline_fetches_nothing(web: Web) -> None:
    assert "--offline" in await refusal(fetcher(is_offline=True), web.url("/cat.png"))
    assert web.heads == []


@pytest.mark.parametrize(
    "answer", [[PRIVATE], [PUBLIC, PRIVATE], [PRIVATE, PUBLIC]], ids=["alone", "last", "first"]
)
async def test_one_private_address_of_a_name_is_enough(web: Web, answer: list[str]) -> None:
    said = await refusal(fetcher(answer), web.url("/cat.png", "cats.example"))
    assert said == "media URL host cats.example is not a public address"
    assert web.heads == []


async def test_name_that_does_not_resolve_is_named(web: Web) -> None:
    assert "gone.example does not resolve" in await refusal(fetcher(), web.url("/", "gone.example"))
    said = await refusal(Fetcher(), "http://no.such.invalid/")
    assert "no.such.invalid does not resolve" in said


async def test_name_is_asked_once_for_each_hop(web: Web) -> None:
    """So an answer that turns private once it was judged is never connected to."""
    rebinding = fetcher([PUBLIC], [PRIVATE])
    assert await rebinding.get(web.url("/cat.png", "cats.example"), LIMIT) == b"cat"
    web.redirect("/again", web.url("/cat.png", "cats.example"))
    rebinding = fetcher([PUBLIC], [PRIVATE])
    said = await refusal(rebinding, web.url("/again", "cats.example"))
    assert said == "media URL host cats.example is not a public address"
    assert len(web.heads) == 2


class Elsewhere(httpcore2.AsyncNetworkBackend):
    """Connects to the server whatever address it was told."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: list[httpcore2.AsyncNetworkStream] = []

    async def connect_tcp(self, host: str, port: int, *more: Any) -> Any:
        stream = await httpcore2.AnyIOBackend().connect_tcp(PUBLIC, self.port)
        self.streams.append(stream)
        return stream


async def test_peer_is_judged_before_anything_is_sent(web: Web) -> None:
    network = Elsewhere(web.port)
    backend = CheckedBackend(
        judge=lambda address: address == "8.8.8.8", resolver=names(["8.8.8.8"]), network=network
    )
    with pytest.raises(MediaRefused, match="is not a public address"):
        await backend.connect_tcp("cats.example", 80)
    with pytest.raises(httpcore2.NetworkError):
        await network.streams[0].write(b"GET / HTTP/1.1\r\n\r\n")
    assert web.heads == []


async def test_second_address_is_tried_where_the_first_does_not_answer(web: Web) -> None:
    both = Fetcher(allow_private=True, resolver=names([PRIVATE, PUBLIC]))
    assert await both.get(web.url("/cat.png", "cats.example"), LIMIT) == b"cat"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_followed(web: Web, status: int) -> None:
    web.redirect("/old", "/cat.png", status)
    assert await fetcher().get(web.url("/old"), LIMIT) == b"cat"


@pytest.mark.parametrize(("hops", "fits"), [(5, True), (6, False)])
async def test_hops_are_counted(web: Web, hops: int, fits: bool) -> None:
    for hop in range(hops):
        web.redirect(f"/{hop}", f"/{hop + 1}")
    web.page(f"/{hops}", b"found")
    if fits:
        assert await fetcher().get(web.url("/0"), LIMIT) == b"found"
        return
    assert "more than 5 redirects" in await refusal(fetcher(), web.url("/0"))
    assert len(web.heads) == 6


@pytest.mark.parametrize(
    ("target", "says"),
    [
        pytest.param("http://127.0.0.2/", "127.0.0.2 is not a public address", id="address"),
        pytest.param("http://inner.example/", "inner.example is not a public", id="name"),
        pytest.param("file:///etc/passwd", "neither http:// nor https://", id="file"),
        pytest.param("http://u:p@127.0.0.1/", "holds a user", id="user"),
        pytest.param("http://[::ffff:127.0.0.2]/", "is not a public address", id="mapped"),
    ],
)
async def test_redirect_to_what_is_refused(web: Web, target: str, says: str) -> None:
    web.redirect("/out", target)
    assert says in await refusal(fetcher([PRIVATE]), web.url("/out"))
    assert len(web.heads) == 1


async def test_redirect_to_nowhere(web: Web) -> None:
    web.page("/out", b"", "302 Found")
    assert "redirects to nowhere" in await refusal(fetcher(), web.url("/out"))


@pytest.mark.parametrize(
    "status", ["204 No Content", "206 Partial", "304 Same", "404 Gone", "500 No"]
)
async def test_answer_that_is_no_200_tells_its_number_and_nothing_of_its_body(
    web: Web, status: str
) -> None:
    web.page("/x", b"" if status[0] in "23" else b"the secret", status)
    said = await refusal(fetcher(), web.url("/x"))
    assert f"answered {status[:3]}" in said
    assert "secret" not in said


@pytest.mark.parametrize(("size", "fits"), [(LIMIT, True), (LIMIT + 1, False)])
@pytest.mark.parametrize("announced", [True, False])
async def test_size_is_exact(web: Web, size: int, fits: bool, announced: bool) -> None:
    body = b"x" * size
    web.page("/big", body)
    if not announced:
        web.pages["/big"] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body
    if fits:
        assert await fetcher().get(web.url("/big"), LIMIT) == body
        return
    assert f"larger than {LIMIT} bytes" in await refusal(fetcher(), web.url("/big"))


async def test_endless_body_ends_at_the_limit(web: Web) -> None:
    web.gate = asyncio.Event()
    web.pages["/big"] = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (LIMIT + 1)
    async with asyncio.timeout(5):
        assert "larger than" in await refusal(fetcher(), web.url("/big"))


@pytest.mark.parametrize(
    "sent",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"],
    ids=["nothing", "half-a-head", "half-a-body"],
)
async def test_server_that_stalls_costs_the_whole_time_and_no_more(web: Web, sent: bytes) -> None:
    web.gate = asyncio.Event()
    web.pages["/slow"] = sent
    async with asyncio.timeout(5):
        said = await refusal(fetcher(total_s=0.1), web.url("/slow"))
    assert "has not answered within 0.1 s" in said


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000 + b"\r\n",
    ],
    ids=["nothing", "no-http", "bad-length", "cut", "endless-head"],
)
async def test_broken_answer_is_a_refusal(web: Web, sent: bytes) -> None:
    web.pages["/x"] = sent
    assert "cannot be read from" in await refusal(fetcher(), web.url("/x"))


async def test_closed_port_is_a_refusal() -> None:
    assert "cannot be connected to" in await refusal(fetcher(), "http://127.0.0.1:1/")


async def test_proxies_of_the_environment_are_not_asked(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await fetcher().get(web.url("/cat.png"), LIMIT) == b"cat"


@pytest.fixture
def certified(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server called cats.example, and of a client that trusts it."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    command += f" -subj /CN=cats -addext subjectAltName=DNS:cats.example -keyout {key} -out {cert}"
    subprocess.run(command.split(), check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))


async def test_https_is_checked_against_the_name(
    certified: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, client = certified
    async with served(server) as web:
        web.page("/cat.png", b"cat")
        url = f"https://cats.example:{web.port}/cat.png"
        assert await fetcher([PUBLIC], tls=client).get(url, LIMIT) == b"cat"
        other = url.replace("cats", "dogs")
        assert "cannot be read" in await refusal(fetcher([PUBLIC], tls=client), other)
        assert "cannot be read" in await refusal(fetcher([PUBLIC]), url)


def rules(root: Path | None = None) -> MediaRules:
    limits = {
        "media_path": None if root is None else str(root),
        "allow_private_media_urls": False,
        "image": {"payload_bytes": 3, "max_images": 2},
        "video": {"dir_allowlist": ["/v"]},
    }
    return read_rules(limits, is_offline=False)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        pytest.param("data:image/png;base64,Y2F0", "", id="data"),
        pytest.param("file://cat.png", "", id="file"),
        pytest.param("cat.png", "", id="name"),
        pytest.param("URL/cat.png", "", id="url"),
        pytest.param("data:image/png;base64,Y2F0cw==", "larger than 3 bytes", id="large-data"),
        pytest.param("large.png", "larger than 3 bytes", id="large-file"),
        pytest.param("URL/large.png", "larger than 3 bytes", id="large-url"),
        pytest.param("ftp://a.example/cat.png", "neither http:// nor https://", id="ftp"),
        pytest.param("data:audio/wav;base64,Y2F0", "is not data:image", id="audio"),
    ],
)
async def test_each_form_of_a_source(web: Web, tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "cat.png").write_bytes(b"cat")
    (tmp_path / "large.png").write_bytes(b"cats")
    web.page("/large.png", b"cats")
    source = source.replace("URL", web.url(""))
    if not says:
        assert await read_media(source, "image", rules(tmp_path), fetcher()) == b"cat"
        return
    with pytest.raises(MediaRefused, match=says):
        await read_media(source, "image", rules(tmp_path), fetcher())


async def test_images_of_a_request_are_counted() -> None:
    rules().check_count(2)
    with pytest.raises(MediaRefused, match="3 images are more than 2"):
        rules().check_count(3)
    assert [rules().limit_bytes(kind) for kind in ("image", "audio", "video")] == [
        3,
        524288000,
        1073741824,
    ]
