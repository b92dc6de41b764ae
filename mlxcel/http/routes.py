"""Route rows of the configuration: read, checked and mounted.

Every name in a row is resolved before the server listens: a typo stops the start.
"""

import difflib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib import import_module, util
from typing import Any, Literal

from sanic import HTTPResponse, Request, Sanic

from mlxcel.core.errors import NotImplementedHere, StartupError
from mlxcel.http import wire
from mlxcel.http.deps import Deps
from mlxcel.protocols.base import Codec, Dialect

log = logging.getLogger(__name__)
PROTOCOLS = "mlxcel.protocols"
GENERATE = "generate"
"""The one handler that works through a codec."""

Handler = Callable[[Request, Deps, "Row"], Awaitable[HTTPResponse | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What a route takes and tells, as names of files in `schemas/wire/`."""

    help: str
    body: str | None
    path: str | None
    """The parts of the path that stand for something."""
    query: str | None
    headers: str | None
    answers: Mapping[int, str | None]
    """By status; None: there is no body."""
    errors: tuple[int, ...]
    """Statuses of answers in the envelope of the dialect."""
    envelope: str
    stream: str | None
    """The data of an event, where the answer is a stream or may be one."""

    def names(self) -> Iterator[str]:
        parts = (self.body, self.path, self.query, self.headers, self.stream, self.envelope)
        yield from (name for name in (*parts, *self.answers.values()) if name is not None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """One route. `paths[0]` names it, the others are aliases."""

    id: str
    methods: tuple[str, ...]
    paths: tuple[str, ...]
    handler: Handler
    codec: Codec | None
    dialect: Dialect
    needs: tuple[str, ...]
    absent: Literal["unsupported", "hide"]
    is_open: bool
    """Needs no key."""
    when: str | bool
    off: str | None
    """What the route answers with 501 where `when` does not hold; None: there is no such route."""
    wire: Wire

    @property
    def upgrades(self) -> bool:
        """To a WebSocket: the answer is not one of HTTP."""
        return HTTPStatus.SWITCHING_PROTOCOLS in self.wire.answers


def row_of(request: Request) -> Row | None:
    """The row a request was matched to; None for 404 and 405."""
    route = request.route
    return route.ctx.row if route is not None else None


def read_rows(rows: Mapping[str, Mapping[str, Any]], handlers: Mapping[str, Handler]) -> list[Row]:
    """Raises StartupError for a name that does not resolve."""
    return [_row(name, row, handlers) for name, row in rows.items()]


def _row(name: str, row: Mapping[str, Any], handlers: Mapping[str, Handler]) -> Row:
    codec = row.get("codec")
    if codec is None and row["handler"] == GENERATE:
        raise StartupError(f"routes.rows.{name}.codec is missing: {GENERATE} needs one")
    return Row(
        id=name,
        methods=tuple(row["methods"]),
        paths=tuple(row["paths"]),
        handler=_handler(name, row["handler"], handlers),
        codec=None if codec is None else _module(name, "codec", codec),
        dialect=_module(name, "dialect", row["dialect"] + ".errors"),
        needs=tuple(row.get("needs") or ()),
        absent=row.get("absent") or "unsupported",
        is_open=row.get("auth") == "none",
        when=row.get("when", True),
        off=row.get("off"),
        wire=_wire(name, row),
    )


def _wire(name: str, row: Mapping[str, Any]) -> Wire:
    found = Wire(
        help=row.get("help") or "",
        body=row.get("body"),
        path=row.get("path"),
        query=row.get("query"),
        headers=row.get("headers"),
        answers={int(status): body for status, body in (row.get("answers") or {}).items()},
        errors=tuple(row.get("errors") or ()),
        envelope=f"{row['dialect']}_error",
        stream=row.get("stream"),
    )
    for schema in found.names():
        if schema not in wire.names():
            near = difflib.get_close_matches(schema, wire.names(), 1, 0)
            raise StartupError(
                f"routes.rows.{name} names {schema}, but there is no schemas/wire/{schema}.json; "
                f"nearest: {near[0]}"
            )
    return found


def _handler(row: str, name: str, handlers: Mapping[str, Handler]) -> Handler:
    if name in handlers:
        return handlers[name]
    near = difflib.get_close_matches(name, handlers, 1, 0)
    raise StartupError(
        f"routes.rows.{row}.handler = {name} is no handler; nearest: {near[0]} "
        f"(there are {', '.join(sorted(handlers))})"
    )


def _module(row: str, field: str, name: str) -> Any:
    full = f"{PROTOCOLS}.{name}"
    try:
        found = util.find_spec(full)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise StartupError(f"routes.rows.{row}.{field} = {name}: there is no module {full}")
    return import_module(full)


def is_on(row: Row, routes: Mapping[str, Any]) -> bool:
    """`when` is a boolean, or the key of a switch in the routes section."""
    if isinstance(row.when, bool):
        return row.when
    section, _, key = row.when.partition(".")
    if section != "routes" or key not in routes:
        raise StartupError(f"routes.rows.{row.id}.when = {row.when}: there is no such switch")
    # The plan has decided every `auto`; what is not plainly on stays off.
    return routes[key] is True


def mounted(rows: Iterable[Row], deps: Deps) -> list[Row]:
    """The rows that exist on this server."""
    shown: list[Row] = []
    for row in rows:
        if not is_on(row, deps.options.routes):
            log.info("route %s is off (%s)", row.paths[0], row.when)
            if row.off is not None:
                shown.append(row)
        elif row.absent == "unsupported" or not _missing(row, deps):
            shown.append(row)
    return shown


def mount(app: Sanic, row: Row, deps: Deps) -> None:
    handler = _handler_of(row, deps)

    async def serve(request: Request, **_: str) -> HTTPResponse | None:
        """What stands for a part of the path is in `request.match_info`, for handlers to read."""
        return await handler(request, deps, row)

    if row.upgrades:
        # How Sanic knows that no response is to be waited for.
        serve.is_websocket = True  # type: ignore[attr-defined]
    for index, path in enumerate(row.paths):
        app.add_route(
            serve,
            deps.options.api_prefix + path,
            methods=list(row.methods),
            name=f"{row.id}.{index}",
            unquote=True,
            ctx_row=row,
        )


def is_served(row: Row, deps: Deps) -> bool:
    """Not: a mounted row that says with 501 why there is nothing to be had."""
    return is_on(row, deps.options.routes) and not _missing(row, deps)


def _handler_of(row: Row, deps: Deps) -> Handler:
    if not is_on(row, deps.options.routes):
        return _off
    missing = _missing(row, deps)
    return partial(_unsupported, missing) if missing else row.handler


def _missing(row: Row, deps: Deps) -> tuple[str, ...]:
    return tuple(need for need in row.needs if need not in deps.ports)


async def _unsupported(missing: tuple[str, ...], request: Request, deps: Deps, row: Row) -> None:
    raise NotImplementedHere(
        f"{row.paths[0]} needs {', '.join(missing)}, which no worker of this server provides"
    )


async def _off(request: Request, deps: Deps, row: Row) -> None:
    assert row.off is not None, "a route that is off and has no words for it is not mounted"
    raise NotImplementedHere(row.off)
