"""Room on disk: asked for before a long write, and named clearly when it runs out all the same."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlxcel.store.problems import NoSpace

RESERVE_BYTES = 64 * 1024 * 1024
"""Left free for everybody else."""


def free_bytes(path: Path) -> int:
    """Of the disk that holds `path`, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def require(path: Path, needed_bytes: int) -> None:
    """Raises NoSpace where a write of that size below `path` would not fit."""
    if (free := free_bytes(path)) < needed_bytes + RESERVE_BYTES:
        raise NoSpace(path, needed_bytes + RESERVE_BYTES, free)


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turns "no space left on device" inside the block into NoSpace."""
    try:
        yield
    except OSError as why:
        if why.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpace(path, None, free_bytes(path)) from why
