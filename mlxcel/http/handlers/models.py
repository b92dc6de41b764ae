"""GET /v1/models, and of one of them."""

import time
from typing import Any
from urllib.parse import unquote

from sanic import HTTPResponse, Request

from mlxcel.core.errors import ModelNotFound
from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.openai.models import model_body, models_body


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]
    return json_reply(models_body(generator.model, **_facts(generator)))


async def retrieve(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """By any of its names. The id in the answer is the one that answers carry."""
    generator: Generator = deps.ports["generate"]
    model = generator.model
    # Sanic leaves what stands for a whole path as it was sent: `owner%2Fname`.
    asked = unquote(request.match_info["model"])
    if asked not in model.names:
        raise ModelNotFound(asked, model.names)
    return json_reply(model_body(model, **_facts(generator)))


def _facts(generator: Generator) -> dict[str, Any]:
    return {
        "info": generator.status().model,
        "ftype": generator.facts.weights_type,
        "created": int(time.time()),
    }
