"""A port of its own for the metrics: so that those who watch need not reach those who are served.

The keys and the certificate are those of the server; every other path is a 404 there.
"""

import logging
import socket
from dataclasses import replace

from sanic import Sanic

from mlxcel.core.errors import StartupError
from mlxcel.core.listener import socket_path
from mlxcel.http.app import create_app
from mlxcel.http.deps import Deps
from mlxcel.http.options import ServerOptions
from mlxcel.http.sockets import bind, shown_address

log = logging.getLogger(__name__)
HANDLER = "metrics.show"
BESIDE_A_FILE = "127.0.0.1"
"""Where the port is when the server itself is on a Unix socket."""


def bind_metrics(options: ServerOptions) -> socket.socket | None:
    """Bound, not listening; None where no such port is wanted. Raises StartupError."""
    if options.metrics_port is None:
        return None
    is_file = socket_path(options.host, options.port) is not None
    host = BESIDE_A_FILE if is_file else options.host
    if options.metrics_port and options.metrics_port == options.port and not is_file:
        raise StartupError(
            f"observability.metrics_port = {options.port} is server.port as well; choose another "
            "port for one of them (0 for any free one)"
        )
    try:
        return bind(host, options.metrics_port)
    except StartupError as error:
        raise StartupError(f"observability.metrics_port: {error}") from error


def metrics_app(deps: Deps, sock: socket.socket) -> Sanic:
    """With the one route, whether or not the server itself has it."""
    routes = deps.options.routes
    rows = {
        name: row | {"when": True}
        for name, row in routes["rows"].items()
        if row["handler"] == HANDLER
    }
    options = replace(deps.options, routes={**routes, "rows": rows})
    log.info("metrics alone on %s%s/metrics", shown_address(sock), options.api_prefix)
    app = create_app(replace(deps, options=options), name="mlxcel-metrics")
    # Sanic compiles its own methods for the first app that starts, and can do that once. What it
    # leaves out for want of signals is the same here: both apps have or lack keys.
    app.config.TOUCHUP = False
    return app
