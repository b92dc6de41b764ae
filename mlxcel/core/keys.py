"""The grammar of API key files."""

from collections.abc import Iterable
from pathlib import Path

from mlxcel.core.errors import StartupError


def read_key_files(paths: Iterable[str]) -> list[str]:
    """The keys of all files in order. Raises StartupError for a file that cannot be read or that
    yields no key."""
    return [key for path in paths for key in _keys(path)]


def _keys(path: str) -> list[str]:
    """One per line, split on LF alone and not trimmed; empty and # lines are skipped."""
    try:
        text = Path(path).expanduser().read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(
            f"the API key file {path} cannot be read: {error} (server.api_key_files)"
        ) from error
    keys = [line for line in text.split("\n") if line and not line.startswith("#")]
    if not keys:
        raise StartupError(f"the API key file {path} holds no key (server.api_key_files)")
    return keys
