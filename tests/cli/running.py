"""A real server on a loop and a thread of its own, for commands that ask one."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sanic import Sanic

from mlxcel.http.server import HttpServer
from tests.http.site import Scripted, StillSettings, server_options


@contextmanager
def running(**changed: Any) -> Iterator[str]:
    """The address. `changed`: of the section `server`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sanic, "test_mode", True)
        generator = Scripted()
        server = HttpServer(
            server_options(**changed),
            settings=StillSettings(),
            statuses=lambda: [generator.status()],
            generate=generator,
        )
        address = server.reserve()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(server.start(), loop).result(20)
            yield address + changed.get("api_prefix", "")
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(20)
            loop.close()
