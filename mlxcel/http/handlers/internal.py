"""GET /v1/internal/mtp-policy."""

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.mlxcel.mtp_policy import policy_body


async def mtp_policy(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]
    return json_reply(policy_body(generator.status()))
