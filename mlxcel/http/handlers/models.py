"""GET /v1/models."""

import time

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.openai.models import models_body


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]
    info = generator.status().model
    return json_reply(models_body(generator.model, info, created=int(time.time())))
