"""Media by URL: from public addresses, through few redirects, in little time, up to a size.

Proxies of the environment are not used: they would connect to what nobody has judged.
"""

import asyncio
import ssl
from collections.abc import AsyncIterable

import httpcore2

from mlxcel.media.addresses import is_public
from mlxcel.media.dial import CheckedBackend, Judge, Resolve, anywhere, resolve
from mlxcel.media.rules import MediaRefused, too_large
from mlxcel.media.urls import MediaUrl, read_url, redirected

TOTAL_S = 10.0
REDIRECTS = 5
FOUND = 200
REDIRECTING = frozenset({301, 302, 303, 307, 308})
HEADERS = [
    (b"Accept", b"*/*"),
    # The limit counts the bytes that arrive: none that grow when they are unpacked.
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", b"mlxcel"),
]


class Fetcher:
    """Gets media by URL. Holds nothing between two calls."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        is_offline: bool = False,
        total_s: float = TOTAL_S,
        judge: Judge = is_public,
        resolver: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls`: whom to trust; None: those whom the system trusts."""
        self._judge = anywhere if allow_private else judge
        self._is_offline = is_offline
        self._total_s = total_s
        self._resolve = resolver
        self._tls = tls

    async def get(self, text: str, limit_bytes: int) -> bytes:
        """Raises MediaRefused, which says why and nothing of what was found."""
        url = read_url(text)
        if self._is_offline:
            raise MediaRefused("media URLs are not fetched: the server runs with --offline")
        try:
            async with asyncio.timeout(self._total_s):
                return await self._follow(url, limit_bytes)
        except TimeoutError as error:
            raise MediaRefused(
                f"media URL host {url.host} has not answered within {self._total_s:g} s"
            ) from error

    async def _follow(self, url: MediaUrl, limit_bytes: int) -> bytes:
        for _ in range(REDIRECTS + 1):
            found = await self._once(url, limit_bytes)
            if isinstance(found, bytes):
                return found
            url = found
        raise MediaRefused(f"media URL leads through more than {REDIRECTS} redirects")

    async def _once(self, url: MediaUrl, limit_bytes: int) -> bytes | MediaUrl:
        """The bytes, or where they are said to be."""
        network = CheckedBackend(judge=self._judge, resolver=self._resolve)
        asked = httpcore2.URL(
            scheme=url.scheme.encode(),
            host=url.host.encode(),
            port=url.port,
            target=url.target.encode(),
        )
        try:
            async with (
                httpcore2.AsyncConnectionPool(
                    network_backend=network, ssl_context=self._tls
                ) as pool,
                pool.stream("GET", asked, headers=_headers(url)) as response,
            ):
                if response.status in REDIRECTING:
                    return redirected(url, _location(response, url))
                if response.status != FOUND:
                    raise MediaRefused(f"media URL host {url.host} answered {response.status}")
                return await _read(response, limit_bytes)
        except httpcore2.TimeoutException as error:
            raise MediaRefused(f"media URL host {url.host} has not answered in time") from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise MediaRefused(f"media URL host {url.host} cannot be read from") from error


def _headers(url: MediaUrl) -> list[tuple[bytes, bytes]]:
    return [(b"Host", url.authority.encode()), *HEADERS]


def _location(response: httpcore2.Response, url: MediaUrl) -> str:
    found = _header(response, b"location")
    if found is None:
        raise MediaRefused(f"media URL host {url.host} redirects to nowhere")
    return found.decode("utf-8", "replace")


async def _read(response: httpcore2.Response, limit_bytes: int) -> bytes:
    announced = _header(response, b"content-length")
    if announced is not None and int(announced) > limit_bytes:
        raise too_large("the media URL's content", limit_bytes)
    parts, left = [], limit_bytes
    stream: AsyncIterable[bytes] = response.aiter_stream()
    async for part in stream:
        left -= len(part)
        if left < 0:
            raise too_large("the media URL's content", limit_bytes)
        parts.append(part)
    return b"".join(parts)


def _header(response: httpcore2.Response, name: bytes) -> bytes | None:
    return next((value for key, value in response.headers if key.lower() == name), None)
