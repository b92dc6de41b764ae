"""The prompt cache: what is in it, and how to empty it. The worker makes both bodies."""

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row


async def stats(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]
    return json_reply(await generator.cache.stats())


async def reset(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """A body is not looked at."""
    generator: Generator = deps.ports["generate"]
    return json_reply(await generator.cache.reset())
