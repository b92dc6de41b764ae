"""The server's share of the plan as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsOptions:
    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    credentials: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Read once at start; bounds were checked by the schema."""

    host: str
    port: int
    api_prefix: str
    api_keys: tuple[str, ...]
    api_key_files: tuple[str, ...]
    ping_interval_s: float | None
    """None: no keep-alive comments."""
    cors: CorsOptions
    routes: Mapping[str, Any]
    """The routes section: rows under `rows`, switches beside them as booleans."""
    body_bytes: int
    http_timeout_s: float


def read_options(options: Mapping[str, Any]) -> ServerOptions:
    """From the `server` section, with `routes`, `body_bytes` and `http_timeout_secs` beside it."""
    ping = options["sse_ping_interval"]
    return ServerOptions(
        host=options["host"],
        port=options["port"],
        api_prefix=options["api_prefix"],
        api_keys=tuple(options["api_keys"]),
        api_key_files=tuple(options["api_key_files"]),
        # The interface's own spelling of "off" is -1.
        ping_interval_s=None if ping is None or ping < 0 else ping,
        cors=_cors(options["cors"]),
        routes=options["routes"],
        body_bytes=options["body_bytes"],
        http_timeout_s=options["http_timeout_secs"],
    )


def _cors(section: Mapping[str, Any]) -> CorsOptions:
    return CorsOptions(
        origins=tuple(section["origins"]),
        methods=tuple(section["methods"]),
        headers=tuple(section["headers"]),
        credentials=section["credentials"],
    )
