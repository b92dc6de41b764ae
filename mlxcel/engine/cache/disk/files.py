"""One file: written whole or not at all, and read only as it was written.

Written and read in chunks: Python's lock is free during each, so the tick goes on (safetensors'
own reader holds it for all of a file; 0.8).
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np

from mlxcel.engine.cache.disk.arrays import STORED, Array, Loaded, Plain, Sheet, nbytes_of, taken
from mlxcel.engine.cache.disk.head import LENGTH, Head, NotSound, encoded, ids_of, parsed, text_of
from mlxcel.engine.cache.disk.run import Run

TEMPORARY = ".kv.tmp"
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
CHUNK_BYTES = 1024 * 1024
NO_DIGEST = "0" * 64
LONG_AGO_S = 3600.0
"""A temporary file is a crashed writer's by then, where it cannot be locked to find out."""


class Stopped(Exception):
    """Nobody waits for the rest of the file: it is not written, or not read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A file to be written."""

    name: str
    run: Run
    head: Head
    layers: Plain
    used_ns: int
    """Becomes its modification time, which is what recency is kept in."""

    @property
    def nbytes(self) -> int:
        """Of the whole file."""
        begin = len(encoded(self.head, text_of(self.head), ids_of(self.run), NO_DIGEST))
        return begin + self.head.id_bytes + self.head.data_bytes


def never() -> bool:
    return False


def write(folder: Path, draft: Draft, is_stopped: Callable[[], bool]) -> int:
    """Bytes of the file. Raises OSError or Stopped; then there is no file."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=TEMPORARY, dir=folder)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            nbytes = _write(file, draft, is_stopped)
            os.utime(temporary, ns=(draft.used_ns, draft.used_ns))
            os.fsync(file.fileno())
            os.replace(temporary, folder / draft.name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync(folder)
    return nbytes


def glance(path: Path) -> tuple[Head, bytes]:
    """What a file says of itself, and its token ids; the arrays are not read. Raises NotSound,
    NotOurs, OSError."""
    with open(path, "rb", buffering=0) as file:
        head, ids, _ = _begin(file)
        return head, ids


def read(path: Path, is_stopped: Callable[[], bool] = never) -> tuple[Head, bytes, Loaded]:
    """Raises as `glance` does; NotSound also where the arrays are not those that were written;
    Stopped."""
    digest = hashlib.sha256()

    def seen(chunk: memoryview) -> None:
        if is_stopped():
            raise Stopped
        digest.update(chunk)

    with open(path, "rb", buffering=0) as file:
        head, ids, data = _begin(file)
        room = np.empty(head.largest_bytes, np.uint8)
        layers = tuple(
            tuple(taken(_array(file, sheet, room, seen)) for sheet in sheets)
            for sheets in head.sheets
        )
    if digest.hexdigest() != data:
        raise NotSound("the digest of its arrays is another one")
    loaded = Loaded(file=path.name, tokens=head.tokens, layers=layers, sheets=head.sheets)
    return head, ids, loaded


def is_abandoned(path: Path) -> bool:
    """Whether the writer of a temporary file is no more: while it lives, it holds a lock."""
    try:
        with open(path, "rb", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:
        return _age_s(path) > LONG_AGO_S


def _write(file: FileIO, draft: Draft, is_stopped: Callable[[], bool]) -> int:
    """The header comes last: it holds the digest of what is written before it."""
    ids, text = ids_of(draft.run), text_of(draft.head)
    file.seek(begin := len(encoded(draft.head, text, ids, NO_DIGEST)))
    _put(file, ids)
    digest = hashlib.sha256()
    for chunk in _chunks(draft.layers):
        if is_stopped():
            raise Stopped
        digest.update(chunk)
        _put(file, chunk)
    end = file.tell()
    file.seek(0)
    _put(file, encoded(draft.head, text, ids, digest.hexdigest()))
    assert file.tell() == begin, "a header is as long with one digest as with another"
    return end


def _begin(file: FileIO) -> tuple[Head, bytes, str]:
    size = os.fstat(file.fileno()).st_size
    (length,) = LENGTH.unpack(_exactly(file, LENGTH.size, size))
    raw = _exactly(file, length, size)
    head, text, data = parsed(raw)
    ids = _exactly(file, head.id_bytes, size)
    if encoded(head, text, ids, data) != LENGTH.pack(length) + raw:
        raise NotSound("its header is not the one that was written")
    if (wanted := file.tell() + head.data_bytes) != size:
        raise NotSound(f"it has {size} bytes in place of {wanted}")
    return head, ids, data


def _exactly(file: FileIO, nbytes: int, size: int) -> bytes:
    if nbytes > size - file.tell():
        raise NotSound(f"it ends after {size} bytes, before it is complete")
    made = bytearray(nbytes)
    _fill(file, memoryview(made))
    return bytes(made)


def _array(file: FileIO, sheet: Sheet, room: Bytes, seen: Callable[[memoryview], None]) -> Array:
    """A view into `room`, which serves one array after the other: memory that was touched before
    is read into twice as fast."""
    flat = room[: nbytes_of(sheet)]
    for chunk in _cut(flat):
        _fill(file, chunk)
        seen(chunk)
    name, shape = sheet
    return flat.view(STORED[name][1]).reshape(shape)


def _fill(file: FileIO, target: memoryview) -> None:
    while len(target):
        count = file.readinto(target)
        if not count:
            raise NotSound("it became shorter while it was read")
        target = target[count:]


def _put(file: FileIO, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while len(left):
        left = left[file.write(left) :]


def _chunks(layers: Plain) -> Iterator[memoryview]:
    for layer in layers:
        for part in layer:
            yield from _cut(np.ascontiguousarray(part).reshape(-1).view(np.uint8))


def _cut(flat: Bytes) -> Iterator[memoryview]:
    for at in range(0, len(flat), CHUNK_BYTES):
        yield flat[at : at + CHUNK_BYTES].data


def _sync(folder: Path) -> None:
    """The name survives a power cut as well. Not every file system can; the file itself is safe."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
