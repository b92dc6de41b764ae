"""Files that a request names, below a folder of the operator.

Blocking: call it on a thread.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mlxcel.media.names import check_name
from mlxcel.media.rules import MediaRefused, too_large

SCHEME = "file://"
STEP_BYTES = 1 << 20
VIDEO_SUFFIXES = frozenset({".mp4", ".webm", ".mkv", ".mov", ".avi", ".m4v", ".mpg", ".mpeg"})
NO_ROOT = "file:// URLs are not allowed unless --media-path is specified"
NO_FOLDERS = "local videos are not allowed unless MLXCEL_VIDEO_DIR_ALLOWLIST names their folder"
MISSING = (errno.ENOENT, errno.ENOTDIR)


def read_file(root: Path | None, source: str, limit_bytes: int) -> bytes:
    """The bytes of `file://NAME` or `NAME` below the root. Raises MediaRefused."""
    if root is None:
        raise MediaRefused(NO_ROOT)
    name = source.removeprefix(SCHEME)
    check_name(name)
    folder = Path(os.path.realpath(root))
    with _opened(folder, _below(folder, name)) as file:
        return _read(file, limit_bytes)


@contextmanager
def open_video(folders: Iterable[Path], source: str) -> Iterator[BinaryIO]:
    """A video of one of the folders. Raises MediaRefused."""
    roots = [Path(os.path.realpath(folder)) for folder in folders]
    if not roots:
        raise MediaRefused(NO_FOLDERS)
    name = source.removeprefix(SCHEME)
    check_name(name)
    path = Path(os.path.realpath(name))
    root = next((root for root in roots if path.is_relative_to(root)), None)
    if root is None:
        raise MediaRefused("the video lies outside the folders of MLXCEL_VIDEO_DIR_ALLOWLIST")
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        raise MediaRefused(f"the video ends in none of {', '.join(sorted(VIDEO_SUFFIXES))}")
    with _opened(root, path) as file:
        yield file


def _below(folder: Path, name: str) -> Path:
    """Where the name leads, links resolved: read below the folder first, then as it stands."""
    found = Path(os.path.realpath(folder / name.lstrip("/")))
    if not os.path.exists(found) and name.startswith("/"):
        found = Path(os.path.realpath(name))
    if not found.is_relative_to(folder):
        raise MediaRefused("the media file lies outside --media-path")
    return found


@contextmanager
def _opened(folder: Path, path: Path) -> Iterator[BinaryIO]:
    """A regular file. The path is walked without following links: it has none since it was
    resolved, and one that was put there in between is not followed."""
    try:
        descriptor = _walk(folder, path.relative_to(folder).parts)
    except OSError as error:
        if error.errno in MISSING:
            raise MediaRefused("the media file does not exist") from error
        why = error.strerror or "unknown"
        raise MediaRefused(f"the media file cannot be opened: {why}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise MediaRefused("the media file is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def _walk(folder: Path, parts: tuple[str, ...]) -> int:
    # Without waiting: a pipe would block until somebody writes.
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        try:
            following = os.open(part, how if is_last else how | os.O_DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = following
    return at


def _read(file: BinaryIO, limit_bytes: int) -> bytes:
    """Counted while it is read: the file may grow."""
    parts, left = [], limit_bytes
    while part := file.read(min(STEP_BYTES, left + 1)):
        left -= len(part)
        if left < 0:
            raise too_large("the media file", limit_bytes)
        parts.append(part)
    return b"".join(parts)
