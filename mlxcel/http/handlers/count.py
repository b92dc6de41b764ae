"""What becomes of a body before anything is generated: how many tokens, and the text itself.

Needs no slot and no worker; the body is read by the codec of the row, which may do without a model.
"""

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.reading import read_request
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """POST /v1/chat/completions/input_tokens and the like."""
    generator: Generator = deps.ports["generate"]
    read = await read_request(request, deps, row, requires_model=False)
    counts = [await generator.count(asked) for asked in read.requests]
    return json_reply({"input_tokens": sum(counts)})


async def render(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """POST /apply-template."""
    generator: Generator = deps.ports["generate"]
    read = await read_request(request, deps, row, requires_model=False)
    return json_reply({"prompt": await generator.render(read.requests[0])})
