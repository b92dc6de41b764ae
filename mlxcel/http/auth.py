"""API keys: where they come from, and whether a request brings one."""

import hmac
import logging
from collections.abc import Iterable, Mapping

from mlxcel.core.errors import InvalidApiKey, StartupError
from mlxcel.core.keys import read_key_files

log = logging.getLogger(__name__)
BEARER = "Bearer "


class KeySet:
    """All keys of this server. Empty: no authentication."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple({key.encode("utf-8") for key in keys})

    def __bool__(self) -> bool:
        return bool(self._keys)

    def has(self, key: str) -> bool:
        """In constant time over the keys: every one is compared, none is left out after a hit."""
        # Headers arrive as text with the undecodable bytes escaped; such a key matches nothing.
        candidate = key.encode("utf-8", "surrogateescape")
        hits = [hmac.compare_digest(candidate, known) for known in self._keys]
        return any(hits)


def load_keys(keys: Iterable[str], files: Iterable[str]) -> KeySet:
    """Raises StartupError for a file that cannot be read, and for a source that is given but
    yields no key: whoever gave it does not expect an open server."""
    given = list(keys)
    found = [key for key in given if key]
    if given and not found:
        raise StartupError("server.api_keys is given but holds no key; give one or leave it out")
    for file in files:
        in_file = read_key_files([file])
        if any(key.endswith("\r") for key in in_file):
            log.warning("the API key file %s has CRLF line ends: the CR is part of each key", file)
        found += in_file
    return KeySet(found)


def check_key(keys: KeySet, headers: Mapping[str, str]) -> None:
    key = sent_key(headers)
    if not key or not keys.has(key):
        raise InvalidApiKey


def sent_key(headers: Mapping[str, str]) -> str:
    """`Authorization` if it is there and not empty, else `X-Api-Key`."""
    sent = headers.get("authorization") or headers.get("x-api-key") or ""
    return sent.removeprefix(BEARER)
