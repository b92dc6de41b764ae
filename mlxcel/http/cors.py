"""Which browsers' pages may talk to this server, as headers."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from mlxcel.http.options import CorsOptions

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
ANY = "*"
LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True)
class CorsPolicy:
    """`*`, `localhost`, one fixed text, or lists of exact origins."""

    options: CorsOptions

    def origin_headers(self, origin: str | None) -> dict[str, str]:
        """For every answer, errors included. Empty for an origin that is refused."""
        allowed = self._allowed(_said(origin))
        if allowed is None:
            return {}
        headers = {"Access-Control-Allow-Origin": allowed}
        if self.options.expose:
            # One by one: with credentials a browser reads "*" as the name of a header.
            headers["Access-Control-Expose-Headers"] = ", ".join(self.options.expose)
        return headers if allowed == ANY else headers | {"Vary": "Origin"}

    def preflight_headers(self, origin: str | None, asked: str | None) -> dict[str, str]:
        """Headers are listed one by one: a browser does not take `*` for `Authorization`."""
        return self.origin_headers(origin) | {
            "Access-Control-Allow-Credentials": "true" if self.options.credentials else "false",
            "Access-Control-Allow-Methods": ", ".join(self.options.methods),
            "Access-Control-Allow-Headers": self._headers(_said(asked)),
        }

    def lets_in(self, origin: str | None, host: str | None) -> bool:
        """For what browsers do not guard: any page may try to open a WebSocket. Without an origin
        there is no page; one of the server itself needs no permission."""
        if origin is None:
            return True
        said = _said(origin)
        if said is None:
            return False
        return _address(said) == host or self._allowed(said) in (ANY, said)

    def _allowed(self, origin: str | None) -> str | None:
        if self.options.allowed is not None:
            return origin if origin in self.options.allowed else None
        origins = self.options.origins
        if ANY in origins:
            # With credentials a browser refuses "*"; without an Origin nobody reads the header.
            return (origin or "") if self.options.credentials else ANY
        if LOCALHOST in origins and origin is not None and _is_local(origin):
            return origin
        if len(origins) == 1 and origins[0] != LOCALHOST:
            return origins[0]
        return origin if origin in origins else None

    def _headers(self, asked: str | None) -> str:
        if ANY in self.options.headers and asked:
            return asked
        return ", ".join(name for name in self.options.headers if name != ANY) or ANY


def _said(sent: str | None) -> str | None:
    """What may be said back in a header. A bare line end in a header comes through Sanic's
    reading; what holds one is no origin and no list of names."""
    return sent if sent is not None and sent.isascii() and sent.isprintable() else None


def _is_local(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in LOCAL_HOSTS
    except ValueError:
        return False


def _address(origin: str) -> str | None:
    """Host and port, as a request names them; None where there are none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None
