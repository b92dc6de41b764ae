"""GET /metrics."""

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.routes import Row
from mlxcel.metrics.families import CONTENT_TYPE

STARTED = "Process-Start-Time-Unix"


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator | None = deps.ports.get("generate")
    text = await deps.scrapes.text(
        None if generator is None else generator.status,
        None if generator is None else generator.cache.stats,
        deps.statuses(),
        is_scrape=request.method == "GET",
    )
    headers = {STARTED: str(deps.scrapes.started_unix)}
    return HTTPResponse(text, headers=headers, content_type=CONTENT_TYPE)
