"""Whether there is room for a file, what has to go for it, and when trying is no use."""

import errno
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlxcel.engine.cache.disk.news import Refusal
from mlxcel.engine.cache.disk.shelf import Shelf

FreeBytes = Callable[[Path], int]
RETRY_S = 30.0
"""After a failed write; until then nothing is tried."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRules:
    folder: Path
    capacity_bytes: int
    min_free_bytes: int
    """Of the file system: a write that would leave less does not happen."""
    ttl_s: float
    """Since a file was last used; 0: for ever."""


class Refused(Exception):
    """A run is not written, for a reason that the next attempt may or may not meet again."""

    def __init__(self, reason: Refusal, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def free_on_disk(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def lacking(rules: DiskRules, shelf: Shelf, nbytes: int, free_bytes: FreeBytes) -> int:
    """Bytes that our own files have to give up before `nbytes` may be written. Raises Refused
    where all of them would not be enough, OSError."""
    if nbytes > rules.capacity_bytes:
        raise Refused(
            Refusal.TOO_LARGE,
            f"a run of {nbytes} bytes is more than cache.disk.capacity_bytes="
            f"{rules.capacity_bytes}",
        )
    free = free_bytes(rules.folder)
    for_disk = rules.min_free_bytes + nbytes - free
    if for_disk > shelf.nbytes:
        raise Refused(
            Refusal.NO_SPACE,
            f"{free} bytes are free there, a run has {nbytes}, and "
            f"cache.disk.min_free_bytes={rules.min_free_bytes} are to stay free; free some space "
            f"there",
        )
    return max(shelf.nbytes + nbytes - rules.capacity_bytes, for_disk, 0)


def refusal_of(why: OSError) -> tuple[Refusal, str]:
    """Of a write that the system did not let happen."""
    if why.errno in _FULL:
        return Refusal.NO_SPACE, f"{_words(why)}; free some space there"
    if why.errno in _READ_ONLY:
        return Refusal.READ_ONLY, f"{_words(why)}; make it writable for this user"
    return Refusal.FAILED, _words(why)


def _words(why: OSError) -> str:
    return why.strerror or str(why)
