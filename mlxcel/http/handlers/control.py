"""POST /v1/chat/completions/control."""

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.body import short_json
from mlxcel.http.deps import Deps
from mlxcel.http.owner import owner_of
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.llama.control import DONE, NOT_ARMED, NOT_LIVE, read_control


async def act(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    name = read_control(short_json(request))
    answer = deps.live.find(name, owner_of(request, deps))
    if answer is None:
        return json_reply(NOT_LIVE)
    if not answer.is_controllable:
        return json_reply(NOT_ARMED)
    generator: Generator = deps.ports["generate"]
    generator.end_thinking(name)
    return json_reply(DONE)
