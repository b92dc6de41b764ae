"""GET /v1/models."""

import time

from sanic import HTTPResponse, Request

from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.openai.models import models_body


async def listing(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    assert deps.generate is not None, "the row is not mounted without it"
    info = deps.generate.status().model
    return json_reply(models_body(deps.generate.model, info, created=int(time.time())))
