"""The listener: addresses, keys, prefixes, and what they open."""

import ipaddress
import re
from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.listener import SUFFIX, is_old_spelling, socket_path
from mlxcel.core.problem import Problem
from mlxcel.graph.rules.finding import Finding, Settled, Tree
from mlxcel.graph.spec import Clamp

BAD_PREFIX = re.compile(r"//|[?#\s\x00-\x1f\x7f]")


def settings_routes(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """`auto`: whoever may reach the server may change it, or has shown a key."""
    if read(tree, "routes.settings") != "auto":
        return
    if _is_local(tree) or _has_keys(tree):
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


def listener_kind(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """What a Unix socket has no use for, and the spelling of one that was meant."""
    host, port = read(tree, "server.host"), read(tree, "server.port")
    path = socket_path(host, port)
    if path is None:
        if "/" in host:
            hint = "let the path of a Unix socket end in .sock"
            yield Problem(key="server.host", value=host, rule="is no address", hint=hint)
        return
    if is_old_spelling(host, port):
        yield f"{host} with port 0 is read as a Unix socket; let its path end in {SUFFIX} instead"
    for key, closed in (("server.tls.cert", None), ("server.reuse_port", False)):
        if (value := read(tree, key)) != closed:
            rule = f"cannot be had on the Unix socket {path}"
            yield Problem(key=key, value=value, rule=rule, hint="leave it out, or give an address")


def whole_tls(tree: Tree, card: Card | None) -> Iterator[Finding]:
    names = {"server.tls.cert": "--ssl-cert-file", "server.tls.key": "--ssl-key-file"}
    for missing, given in (tuple(names), tuple(reversed(names))):
        if read(tree, missing) is None and read(tree, given) is not None:
            yield Problem(
                key=missing,
                value=None,
                rule=f"is needed beside {given} ({names[given]}): TLS takes both files",
                hint=f"give {names[missing]}",
            )


def open_listener(tree: Tree, card: Card | None) -> Iterator[Finding]:
    host = read(tree, "server.host")
    if not _is_local(tree) and not _has_keys(tree):
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


def _is_local(tree: Tree) -> bool:
    """Only this machine, or on a Unix socket only this user, may call."""
    host, port = read(tree, "server.host"), read(tree, "server.port")
    return socket_path(host, port) is not None or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
