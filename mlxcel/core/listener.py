"""Where a server listens, as `server.host` and `server.port` say it: TCP, or a Unix socket."""

SUFFIX = ".sock"
SCHEME = "unix:"


def socket_path(host: str, port: int) -> str | None:
    """The path of a Unix socket; None for TCP. Any port goes with a path that ends in `.sock`."""
    return host if host.endswith(SUFFIX) or is_old_spelling(host, port) else None


def is_old_spelling(host: str, port: int) -> bool:
    """llama-server's first way to name a Unix socket: a path of any name, and port 0."""
    return "/" in host and port == 0 and not host.endswith(SUFFIX)


def shown(host: str, port: int) -> str:
    """`unix:/run/mlxcel.sock` or `127.0.0.1:8080`."""
    path = socket_path(host, port)
    return f"{host}:{port}" if path is None else f"{SCHEME}{path}"
