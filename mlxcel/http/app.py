"""The Sanic application, made from plain values: routes, middleware, errors, limits.

Binds nothing and starts nothing; tests and the server use the same function.
"""

from sanic import HTTPResponse, Request, Sanic
from sanic.application.state import ApplicationServerInfo
from sanic.config import Config
from sanic.http.constants import HTTP

from mlxcel.http.auth import check_key
from mlxcel.http.cors import CorsPolicy
from mlxcel.http.deps import Deps
from mlxcel.http.errors import error_reply
from mlxcel.http.handlers import HANDLERS
from mlxcel.http.routes import Row, mount, mounted, read_rows

HEADER_BYTES = 16_384
"""Sanic's ceiling."""
REQUEST_ID = "X-Request-Id"
REQUEST_ID_CHARS = 256


def create_app(deps: Deps) -> Sanic:
    """Raises StartupError for a row that names what does not exist."""
    app = Sanic("mlxcel", config=_config(deps), configure_logging=False)
    rows = mounted(read_rows(deps.options.routes["rows"], HANDLERS), deps)
    _add_middleware(app, deps, rows)
    app.error_handler.add(Exception, error_reply)
    # Tells Sanic that there is no HTTP/3, else every answer has an empty Alt-Svc header.
    app.state.server_info.append(ApplicationServerInfo(settings={"version": HTTP.VERSION_1}))
    for row in rows:
        mount(app, row, deps)
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


def _add_middleware(app: Sanic, deps: Deps, rows: list[Row]) -> None:
    """Runs before 404, 405 and 413 too: CORS answers OPTIONS, then the key is asked for."""
    policy = CorsPolicy(deps.options.cors)
    # Compared with the path as it was sent: behind a prefix nothing is exempt.
    open_paths = frozenset(path for row in rows if row.is_open for path in row.paths)

    async def preflight(request: Request) -> HTTPResponse | None:
        if request.method != "OPTIONS":
            return None
        asked = request.headers.get("access-control-request-headers")
        headers = policy.preflight_headers(request.headers.get("origin"), asked)
        return HTTPResponse(b"", headers=headers, content_type="text/html")

    async def authenticate(request: Request) -> None:
        if deps.keys and request.path not in open_paths:
            check_key(deps.keys, request.headers)

    async def finish(request: Request, response: HTTPResponse) -> None:
        response.headers.update(policy.origin_headers(request.headers.get("origin")))
        request_id = _request_id(request)
        if request_id is not None:
            response.headers[REQUEST_ID] = request_id

    app.register_middleware(preflight, "request")
    app.register_middleware(authenticate, "request")
    app.register_middleware(finish, "response")


def _request_id(request: Request) -> str | None:
    """The client's own id, else ours where a route made one."""
    sent = request.headers.get(REQUEST_ID, "")
    if 0 < len(sent) <= REQUEST_ID_CHARS and sent.isascii() and sent.isprintable():
        return sent
    return getattr(request.ctx, "request_id", None)
