"""Which pages may call: two ways to say it, of which one counts."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.rules.finding import Finding, Settled, Tree

ORIGINS = "server.cors.origins"
ALLOWED = "server.cors.allowed_origins"
SCHEMES = ("http", "https")


def page_origins(tree: Tree, card: Card | None) -> Iterator[Finding]:
    origins, allowed = read(tree, ORIGINS), read(tree, ALLOWED)
    if allowed is None:
        if origins is None:
            yield Settled(key=ORIGINS, used=["*"])
        return
    if origins is not None:
        yield Problem(
            key=ALLOWED,
            value=allowed,
            rule=f"cannot stand beside {ORIGINS} (--cors-origins): one of them says who may call",
            hint="leave one of them out",
        )
        return
    yield from _listed([text.strip() for text in allowed if text.strip()], allowed)


def _listed(texts: list[str], asked: list[str]) -> Iterator[Finding]:
    if not texts:
        yield Problem(key=ALLOWED, value=asked, rule="names no origin", hint="leave it out")
    for text in texts:
        if fault := _fault(text):
            hint = "give a scheme and a host, like https://page.example:8443"
            yield Problem(key=ALLOWED, value=text, rule=fault, hint=hint)
    yield Settled(key=ALLOWED, used=texts)


def _fault(text: str) -> str:
    """Why this is no origin as browsers write it; empty for one that is."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        return f"is no origin: {error}"
    if url.scheme not in SCHEMES or "://" not in text:
        return "does not begin with http:// or https://"
    if not url.hostname or any(not char.isprintable() or char.isspace() for char in text):
        return "names no host"
    if url.path or url.query or url.fragment or "?" in text or "#" in text:
        return "has more than a host: a browser sends no path, not even /"
    if "@" in url.netloc:
        return "holds a user"
    if port is None and url.netloc.endswith(":"):
        return "has no port after its colon"
    return ""
