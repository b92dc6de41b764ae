"""The Sanic application, made from plain values: routes, middleware, errors, limits.

Binds nothing and starts nothing; tests and the server use the same function.
"""

from functools import cache

import orjson
from sanic import HTTPResponse, Request, Sanic
from sanic.application.state import ApplicationServerInfo
from sanic.config import Config
from sanic.exceptions import RequestCancelled
from sanic.http.constants import HTTP

from mlxcel.core.errors import InvalidApiKey
from mlxcel.http.auth import KeySet, check_key
from mlxcel.http.cors import CorsPolicy
from mlxcel.http.deps import Deps
from mlxcel.http.errors import broken_off, error_reply
from mlxcel.http.handlers import find_handlers
from mlxcel.http.head import REQUEST_ID, ReadRequest, is_read, request_id
from mlxcel.http.openapi import document
from mlxcel.http.routes import Row, mount, mounted, read_rows

HEADER_BYTES = 16_384
"""Sanic's ceiling."""


def create_app(deps: Deps, *, name: str = "mlxcel") -> Sanic:
    """Raises StartupError for a row that names what does not exist."""
    app = Sanic(name, config=_config(deps), configure_logging=False, request_class=ReadRequest)
    rows = mounted(read_rows(deps.options.routes["rows"], find_handlers()), deps)
    _add_cors(app, deps)
    if deps.keys:
        _add_auth(app, deps.keys, rows)
    app.error_handler.add(Exception, error_reply)
    app.error_handler.add(RequestCancelled, broken_off)
    # Tells Sanic that there is no HTTP/3, else every answer has an empty Alt-Svc header.
    app.state.server_info.append(ApplicationServerInfo(settings={"version": HTTP.VERSION_1}))
    if any(row.upgrades for row in rows):
        app.enable_websocket()
    for row in rows:
        mount(app, row, deps)
    # Made once, when it is first asked for: most servers are never asked.
    app.ctx.document = cache(lambda: orjson.dumps(document(rows, deps)))
    return app


def _config(deps: Deps) -> Config:
    # Sanic reads every SANIC_* variable otherwise, timeouts among them.
    config = Config(env_prefix="MLXCEL_SANIC_")
    config.update(
        ACCESS_LOG=False,
        # Where sanic-ext is installed it would add routes of its own.
        AUTO_EXTEND=False,
        MOTD=False,
        REQUEST_MAX_HEADER_SIZE=HEADER_BYTES,
        REQUEST_MAX_SIZE=deps.options.body_bytes,
        REQUEST_TIMEOUT=deps.options.http_timeout_s,
        RESPONSE_TIMEOUT=deps.options.http_timeout_s,
    )
    return config


def _add_cors(app: Sanic, deps: Deps) -> None:
    """Middleware runs before 404, 405 and 413 too: OPTIONS is answered for every path."""
    policy = CorsPolicy(deps.options.cors)

    async def preflight(request: Request) -> HTTPResponse | None:
        if request.method != "OPTIONS":
            return None
        asked = request.headers.get("access-control-request-headers")
        headers = policy.preflight_headers(request.headers.get("origin"), asked)
        return HTTPResponse(b"", headers=headers, content_type="text/html")

    async def finish(request: Request, response: HTTPResponse) -> None:
        response.headers.update(policy.origin_headers(request.headers.get("origin")))
        response.headers[REQUEST_ID] = request_id(request)

    app.register_middleware(preflight, "request")
    app.register_middleware(finish, "response")


def _add_auth(app: Sanic, keys: KeySet, rows: list[Row]) -> None:
    """After CORS: a preflight brings no key."""
    # Compared with the path as it was sent: behind a prefix nothing is exempt.
    open_paths = frozenset(path for row in rows if row.is_open for path in row.paths)

    async def authenticate(request: Request) -> None:
        """For whatever has no route; else it only repeats a check that was passed."""
        # A head that could not be read has no key to check, and is refused as such.
        if is_read(request) and request.path not in open_paths:
            check_key(keys, request.headers)

    async def authenticate_first(request: Request, **_: object) -> None:
        """Middleware of a matched route runs when the whole body is there; this before it."""
        try:
            await authenticate(request)
        except InvalidApiKey:
            if request.stream.request_body:
                # What follows on this connection is a body that nobody wants.
                request.stream.keep_alive = False
            raise

    app.register_middleware(authenticate, "request")
    app.signal("http.routing.after")(authenticate_first)
