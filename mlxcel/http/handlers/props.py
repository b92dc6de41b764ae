"""GET and POST /props."""

import asyncio

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.reading import read_rules
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.llama.props import Served, changed_body, default_params, props_body


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]
    # The first time they cost a dozen renderings of a template.
    facts = await asyncio.to_thread(lambda: generator.facts)
    params = default_params(deps.settings.current, read_rules(deps, generator))
    return json_reply(props_body(_served(deps, generator), facts, params))


async def change(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """The body is not looked at."""
    return json_reply(changed_body())


def _served(deps: Deps, generator: Generator) -> Served:
    status, shown, routes = generator.status(), deps.options.shown, deps.options.routes
    return Served(
        alias=generator.model.id,
        slots=status.stats.slots,
        window=generator.window,
        model=status.model,
        kv_mode=shown.kv_mode,
        kv_bits=shown.kv_bits,
        max_kv=shown.max_kv,
        has_slots=routes["slots"] is True,
        has_metrics=routes["metrics"] is True,
        has_settings=routes["settings"] is True,
    )
