"""Which model a running server serves, asked of the server itself."""

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from ipaddress import ip_address
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from mlxcel.connect.setup import ConnectFailed, Server

TIMEOUT_S = 10.0
MOST_BYTES = 1 << 20
START = "start one with `mlxcel`, or name it with --url"


def configured_url(server: Mapping[str, Any]) -> str:
    """Where a server with this section `server` is met. Raises ConnectFailed for one that agents
    cannot reach, or that nobody can guess."""
    host, port = server["host"], server["port"]
    if host.endswith(".sock"):
        raise ConnectFailed(f"server.host {host} is a Unix socket, which no agent can use; {START}")
    if port == 0:
        raise ConnectFailed("server.port is 0, any free port; say which one it is with --url")
    scheme = "https" if server["tls"]["cert"] else "http"
    prefix = server["api_prefix"].strip("/")
    return f"{scheme}://{_reachable(host)}:{port}" + (f"/{prefix}" if prefix else "")


def typed_url(text: str) -> str:
    """As a user types it: with /v1 or without, with http:// or without. Raises ConnectFailed."""
    url = text if "://" in text else f"http://{text}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConnectFailed(f"--url {text} is no address like http://127.0.0.1:8080")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ConnectFailed(f"--url {text}: leave out what is not host, port and path")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def ask(url: str, *, key: str | None, certificate: str | None = None) -> Server:
    """`certificate`: a PEM file to trust besides those that are known. Raises ConnectFailed."""
    entry = _entry(url, _models(url, key, certificate))
    meta = entry.get("meta")
    sizes = [meta.get(name) for name in ("n_ctx", "n_ctx_train")] if isinstance(meta, dict) else []
    windows = [size for size in sizes if type(size) is int and size > 0]
    if not windows:
        raise ConnectFailed(f"{url} does not say how long its context is; start it with --ctx-size")
    return Server(url=url, model=entry["id"], window=windows[0], key=key)


def _entry(url: str, body: Any) -> dict[str, Any]:
    """The first model that has a name one can write down."""
    entries = body.get("data") if isinstance(body, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        name = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and name and name.isprintable():
            return dict(entry)
    raise ConnectFailed(f"what answers at {url}/v1/models names no model: is it mlxcel?")


def _models(url: str, key: str | None, certificate: str | None) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = Request(f"{url}/v1/models", headers=headers)
    try:
        with _opener(url, certificate).open(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read(MOST_BYTES))
    except HTTPError as error:
        with error:
            raise ConnectFailed(_refusal(url, key, error)) from error
    except URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            why = error.reason.verify_message
            raise ConnectFailed(f"the certificate of {url} is not trusted: {why}") from error
        raise ConnectFailed(f"no server answers at {url} ({error.reason}); {START}") from error
    except (OSError, HTTPException) as error:
        raise ConnectFailed(f"no server answers at {url} ({error}); {START}") from error
    except ValueError as error:
        raise ConnectFailed(f"{url}/v1/models is not JSON: is it mlxcel?") from error


def _refusal(url: str, key: str | None, error: HTTPError) -> str:
    if error.code == 401 and key is None:
        return f"{url} wants a key: give --api-key, or set MLXCEL_API_KEY"
    if error.code == 401:
        return f"{url} does not know the key: give another with --api-key"
    if error.code == 404:
        return f"{url} has no /v1/models: does --url lack the server's --api-prefix?"
    return f"{url}/v1/models answers {error.code} {error.reason}"


class _Straight(HTTPRedirectHandler):
    """Goes nowhere else: the key would come along, and agents do not follow either."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def _opener(url: str, certificate: str | None) -> OpenerDirector:
    try:
        context = ssl.create_default_context()
        if certificate is not None:
            context.load_verify_locations(certificate)
    except OSError as error:
        raise ConnectFailed(f"the certificate {certificate} cannot be read: {error}") from error
    # A proxy knows another loopback.
    direct = [ProxyHandler({})] if _is_loopback(urlsplit(url).hostname or "") else []
    return build_opener(*direct, _Straight(), HTTPSHandler(context=context))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    """An address to call, of one to listen on."""
    try:
        address = ip_address(host)
    except ValueError:
        return host or "127.0.0.1"
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"
