"""Where responses are kept: in memory, or in a file."""

from pathlib import Path

from mlxcel.storage.responses import MemoryStore, ResponseStore
from mlxcel.storage.shelf import Bounds


def open_store(bounds: Bounds, file: Path | None) -> ResponseStore:
    """Raises StartupError for a file that cannot be used."""
    if file is None or not bounds.is_on:
        return MemoryStore(bounds)
    # SQLite is part of Python, not of every start.
    from mlxcel.storage.sqlite import SqliteStore

    return SqliteStore(file, bounds)
