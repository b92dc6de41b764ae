"""GET /health; with ?fail_on_no_slot=1 a server whose slots are all busy is 503."""

import os

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.mlxcel.health import OK, health_body, health_word


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator | None = deps.ports.get("generate")
    model = generator.model if generator is not None else None
    chat = generator.status() if generator is not None else None
    word = health_word(
        chat,
        deps.statuses(),
        draining=deps.inflight.is_draining,
        wants_slot=bool(request.args.get("fail_on_no_slot")),
    )
    body = health_body(
        word,
        model,
        chat,
        has_tool_parser=generator is not None and generator.facts.has_tool_parser,
        front_pid=os.getpid(),
    )
    return json_reply(body, 200 if word == OK else 503)
