"""Which browsers' pages may talk to this server, as headers."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from mlxcel.http.options import CorsOptions

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
ANY = "*"
LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True)
class CorsPolicy:
    """`*`, `localhost`, one fixed text, or a list of exact origins."""

    options: CorsOptions

    def origin_headers(self, origin: str | None) -> dict[str, str]:
        """For every answer, errors included. Empty for an origin that is refused."""
        allowed = self._allowed(origin)
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
            "Access-Control-Allow-Headers": self._headers(asked),
        }

    def _allowed(self, origin: str | None) -> str | None:
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
        if ANY in self.options.headers:
            return asked or ANY
        return ", ".join(self.options.headers)


def _is_local(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in LOCAL_HOSTS
    except ValueError:
        return False
