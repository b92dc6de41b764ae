"""GET /openapi.json."""

from sanic import HTTPResponse, Request

from mlxcel.http.deps import Deps
from mlxcel.http.routes import Row

CONTENT_TYPE = "application/json"


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    return HTTPResponse(request.app.ctx.document(), content_type=CONTENT_TYPE)
