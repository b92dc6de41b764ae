"""GET and POST /lora-adapters."""

from sanic import HTTPResponse, Request

from mlxcel.core.errors import BadRequest
from mlxcel.core.ports import Generator
from mlxcel.http.body import short_json
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.llama.lora import adapters_body, changed_body, read_scales


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]
    return json_reply(adapters_body(generator.adapters.items()))


async def change(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """For requests that come later; those that run keep their scales."""
    generator: Generator = deps.ports["generate"]
    try:
        sent = short_json(request)
    except BadRequest:
        sent = None  # one text for whatever is no array
    generator.adapters.set(read_scales(sent))
    return json_reply(changed_body())
