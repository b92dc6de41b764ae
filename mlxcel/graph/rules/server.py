"""The listener: addresses, keys, prefixes, and what they open."""

import ipaddress
import re
from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.rules.finding import Finding, Settled, Tree
from mlxcel.graph.spec import Clamp

BAD_PREFIX = re.compile(r"//|[?#\s\x00-\x1f\x7f]")


def settings_routes(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """`auto`: whoever may reach the server may change it, or has shown a key."""
    if read(tree, "routes.settings") != "auto":
        return
    if _is_loopback(read(tree, "server.host")) or _has_keys(tree):
        yield Settled(key="routes.settings", used=True)
        return
    reason = "other machines can reach it and no key is set; routes.settings=true opens them"
    yield Clamp(key="routes.settings", asked="auto", used=False, reason=reason)


def prefix_grammar(tree: Tree, card: Card | None) -> Iterator[Finding]:
    prefix = read(tree, "server.api_prefix")
    is_good = prefix.startswith("/") and not prefix.endswith("/") and not BAD_PREFIX.search(prefix)
    if prefix and not is_good:
        yield Problem(
            key="server.api_prefix",
            value=prefix,
            rule="is not a path prefix: it starts with /, does not end with one, and has no //, "
            "?, #, space or control character",
            hint="like /llm",
        )


def tcp_listener(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """The two spellings that llama-server takes for a Unix socket."""
    host = read(tree, "server.host")
    if host.endswith(".sock") or "/" in host:
        yield Problem(
            key="server.host",
            value=host,
            rule="is no address, and a Unix socket is not built yet",
            hint="give an address, like 127.0.0.1",
        )


def open_listener(tree: Tree, card: Card | None) -> Iterator[Finding]:
    host = read(tree, "server.host")
    if not _is_loopback(host) and not _has_keys(tree):
        yield (
            f"{host} is open to other machines and no API key is set; "
            "give keys with --api-key-file or server.api_keys"
        )


def prefixed_health(tree: Tree, card: Card | None) -> Iterator[Finding]:
    prefix = read(tree, "server.api_prefix")
    if prefix and _has_keys(tree):
        yield f"{prefix}/health needs a key: only the paths without a prefix are exempt"


def _has_keys(tree: Tree) -> bool:
    return bool(read(tree, "server.api_keys") or read(tree, "server.api_key_files"))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
