"""Routes of llama-server's web interface that this server never serves."""

from sanic import HTTPResponse, Request

from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row

DISABLED = {"error": {"message": "this feature is disabled", "type": "feature_disabled"}}
"""Fixed text; not an envelope of any dialect."""


async def refuse(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    return json_reply(DISABLED, 403)
