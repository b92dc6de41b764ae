"""The thread that reads runs back, and looks at each bit of them before it says so."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from mlxcel.engine.cache.disk.arrays import Loaded
from mlxcel.engine.cache.disk.files import glance, read
from mlxcel.engine.cache.disk.head import Head, NotOurs, NotSound, run_of
from mlxcel.engine.cache.disk.news import Loss, Unsound
from mlxcel.engine.cache.disk.run import Identity, Run, StoredRun, file_name

log = logging.getLogger(__name__)

Segments = list[Loaded | Unsound]
Remove = Callable[[str, Loss], None]
"""Of a file that must not be asked for again; on any thread."""


class Checker:
    """Believes a file only where it is of this identity and stands under its own name."""

    def __init__(self, identity: Identity, kind: str) -> None:
        self._identity = identity
        self._kind = kind
        self._mark = identity.mark(kind)

    def run(self, name: str, head: Head, ids: bytes) -> Run:
        """Raises NotOurs, NotSound."""
        if head.identity != self._identity:
            raise NotOurs("it is of another model, mode or adapter")
        run = run_of(head, ids)
        if file_name(run, self._mark, self._kind) != name:
            raise NotSound("it is another run's file")
        return run


class Reader:
    def __init__(self, folder: Path, checker: Checker, remove: Remove) -> None:
        self._folder = folder
        self._checker = checker
        self._remove = remove
        self.sound = self.unsound = self.foreign = 0
        """Files that were read, or skipped."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cache-disk-read")

    def read(self, files: Sequence[str]) -> Future[Segments]:
        """One for each file, in their order."""
        return self._thread.submit(self._read_all, tuple(files))

    def glance(self, name: str) -> StoredRun | None:
        """On the calling thread, before the first `read`. None: not to be had."""
        path = self._folder / name
        try:
            head, ids = glance(path)
            run = self._checker.run(name, head, ids)
            return StoredRun(file=name, run=run, nbytes=path.stat().st_size)
        except (NotOurs, NotSound, OSError) as why:
            self._reject(name, why)
            return None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read_all(self, files: tuple[str, ...]) -> Segments:
        return [self._read(name) for name in files]

    def _read(self, name: str) -> Loaded | Unsound:
        try:
            head, ids, loaded = read(self._folder / name)
            self._checker.run(name, head, ids)
        except (NotOurs, NotSound, OSError, MemoryError, RuntimeError) as why:  # MLX's allocator
            self._reject(name, why)
            return Unsound(file=name, why=str(why))
        self.sound += 1
        return loaded

    def _reject(self, name: str, why: Exception) -> None:
        """What may be read another time, like a file on a disk that does not answer, stays."""
        if isinstance(why, FileNotFoundError):
            self._remove(name, Loss.VANISHED)
            return
        log.warning("prompt cache on disk: %s is skipped: %s", name, why)
        if isinstance(why, NotOurs):
            self.foreign += 1
            self._remove(name, Loss.FOREIGN)
            return
        self.unsound += 1
        if isinstance(why, NotSound):
            self._remove(name, Loss.UNSOUND)
