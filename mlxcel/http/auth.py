"""API keys: where they come from, and whether a request brings one."""

import hmac
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from mlxcel.core.errors import InvalidApiKey, StartupError

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
    """Raises StartupError for a file that cannot be read or that yields no key."""
    found = [key for key in keys if key]
    for file in files:
        found.extend(_file_keys(file))
    return KeySet(found)


def _file_keys(file: str) -> list[str]:
    """One key per line, split on LF alone and not trimmed; empty and # lines are skipped."""
    try:
        text = Path(file).expanduser().read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(
            f"the API key file {file} cannot be read: {error} (server.api_key_files)"
        ) from error
    keys = [line for line in text.split("\n") if line and not line.startswith("#")]
    if not keys:
        raise StartupError(f"the API key file {file} holds no key (server.api_key_files)")
    if any(key.endswith("\r") for key in keys):
        log.warning("the API key file %s has CRLF line ends: the CR is part of each key", file)
    return keys


def check_key(keys: KeySet, headers: Mapping[str, str]) -> None:
    """`Authorization` if it is there and not empty, else `X-Api-Key`."""
    sent = headers.get("authorization") or headers.get("x-api-key") or ""
    key = sent.removeprefix(BEARER)
    if not key or not keys.has(key):
        raise InvalidApiKey
