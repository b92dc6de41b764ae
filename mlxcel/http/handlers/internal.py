"""GET /v1/internal/mtp-policy."""

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.core.status import State
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.mlxcel.mtp_policy import unavailable_body


async def mtp_policy(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]
    return json_reply(unavailable_body(is_ready=generator.status().state is State.OK))
