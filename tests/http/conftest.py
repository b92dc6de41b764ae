"""Servers on free loopback ports for the tests of this folder."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
import uvloop
from sanic import Sanic
from sanic.touchup.schemes.base import BaseScheme

from mlxcel.http.server import HttpServer
from tests.http.site import Scripted, Site, Start, StillSettings, server_options


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop the product runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def _sanic_is_compiled_once() -> Iterator[None]:
    """Each server that starts makes Sanic compile some of its own methods anew, without what they
    do for signals that its app lacks: half of what starting one takes."""
    build = BaseScheme.build
    known: dict[object, object] = {}

    def built(method: Callable[..., object], names: dict[str, object], app: Sanic) -> object:
        made_of = (method, frozenset(signal.name for signal in app.signal_router.routes))
        if made_of not in known:
            known[made_of] = build(method, names, app)
        return known[made_of]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseScheme, "build", built)
        yield


@pytest.fixture
def generator() -> Scripted:
    return Scripted()


@pytest_asyncio.fixture
async def start(generator: Scripted, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Starts servers: `await start(api_keys=["k"])`; `settings` and `generate` go by name."""
    monkeypatch.setattr(Sanic, "test_mode", True)
    async with AsyncExitStack() as stack:

        async def make(
            *, settings: Any = None, generate: Any = generator, **changed: object
        ) -> Site:
            server = HttpServer(
                server_options(**changed),
                settings=StillSettings() if settings is None else settings,
                statuses=lambda: [generator.status()],
                **({} if generate is None else {"generate": generate}),
            )
            site = Site(server, server.reserve().removeprefix("http://"), generator)
            await server.start()
            stack.push_async_callback(server.stop)
            await stack.enter_async_context(site.http)
            return site

        yield make


@pytest_asyncio.fixture
async def site(start: Start) -> Site:
    return await start()
