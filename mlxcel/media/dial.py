"""Connections to public addresses alone: a name is resolved once, every address it has is judged,
and the connection goes to one of those. So an answer that changes later (DNS rebinding) changes
nothing; who is at the other end is judged once more all the same.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import httpcore2
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream

from mlxcel.media.addresses import is_public, literal
from mlxcel.media.rules import MediaRefused

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses. Raises OSError."""
Judge = Callable[[str], bool]
"""Whether an address may be connected to."""


async def resolve(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def anywhere(address: str) -> bool:
    return True


class CheckedBackend(AsyncNetworkBackend):
    """The network as a client of media sees it. One per fetch."""

    def __init__(
        self,
        *,
        judge: Judge = is_public,
        resolver: Resolve = resolve,
        network: AsyncNetworkBackend | None = None,
    ) -> None:
        self._judge = judge
        self._resolve = resolver
        self._network = network if network is not None else httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        """Raises MediaRefused for an address that is refused."""
        for address in await self._addresses(host, port):
            try:
                stream = await self._network.connect_tcp(address, port, timeout)
            except httpcore2.ConnectError:
                continue
            await self._check_peer(stream, host)
            return stream
        raise MediaRefused(f"media URL host {host} cannot be connected to")

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        if literal(host) is not None:
            self._check(host, host)
            return [host]
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise MediaRefused(f"media URL host {host} does not resolve") from error
        for address in found:
            self._check(address, host)
        return list(dict.fromkeys(found))

    def _check(self, address: str, host: str) -> None:
        if not self._judge(address):
            # Not the address: it would tell a stranger what names mean inside.
            raise MediaRefused(f"media URL host {host} is not a public address")

    async def _check_peer(self, stream: AsyncNetworkStream, host: str) -> None:
        peer = stream.get_extra_info("server_addr")
        try:
            self._check(str(peer[0]) if peer else "", host)
        except MediaRefused:
            await stream.aclose()
            raise
