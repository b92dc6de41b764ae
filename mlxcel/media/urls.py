"""The shape of a URL that may be fetched, judged before anything is asked of the network."""

from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from mlxcel.media.rules import MediaRefused

PORTS = {"http": 80, "https": 443}
KEPT = "!#$%&'()*+,/:;=?@[]~"
"""Characters of a target that stand for themselves; what is escaped already stays so."""
URL_CHARS = 8192
HOST_CHARS = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaUrl:
    """One address to fetch from, in the parts a client needs."""

    text: str
    scheme: str
    host: str
    """As DNS and the address rules know it: ASCII, an IPv6 address without brackets."""
    port: int
    target: str

    @property
    def authority(self) -> str:
        """As the header Host says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def read_url(text: str) -> MediaUrl:
    """Raises MediaRefused; the message names no more of the URL than its host."""
    if len(text) > URL_CHARS:
        raise MediaRefused(f"media URL is longer than {URL_CHARS} characters")
    # urlsplit drops line ends and tabs, and other readers take a backslash for a slash.
    if any(char <= " " or char in "\\\x7f" for char in text):
        raise MediaRefused("media URL holds a space, a backslash or a control character")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise MediaRefused("media URL cannot be read: its host or port is malformed") from error
    if url.scheme not in PORTS:
        raise MediaRefused("media URL is neither http:// nor https://")
    if url.username is not None or url.password is not None:
        raise MediaRefused("media URL holds a user or password")
    if not url.hostname:
        raise MediaRefused("media URL names no host")
    return MediaUrl(
        text=text,
        scheme=url.scheme,
        host=_ascii(url.hostname),
        port=PORTS[url.scheme] if port is None else port,
        target=_target(url),
    )


def redirected(url: MediaUrl, location: str) -> MediaUrl:
    """The target of a redirect, judged like the first one."""
    try:
        joined = urljoin(url.text, location)
    except ValueError as error:
        raise MediaRefused(f"media URL host {url.host} redirects to no URL") from error
    return read_url(joined)


def _ascii(host: str) -> str:
    try:
        known = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        known = ""
    if not 0 < len(known) <= HOST_CHARS:
        raise MediaRefused("media URL names a host that is no domain name")
    return known


def _target(url: SplitResult) -> str:
    path = quote(url.path or "/", safe=KEPT)
    return f"{path}?{quote(url.query, safe=KEPT)}" if url.query else path
