"""The thread that reads runs back, and looks at each bit of them before it says so."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from weakref import WeakValueDictionary

from mlxcel.engine.cache.disk.arrays import Loaded
from mlxcel.engine.cache.disk.files import Stopped, glance, read
from mlxcel.engine.cache.disk.head import Head, NotOurs, NotSound, run_of
from mlxcel.engine.cache.disk.news import Loss, Unsound
from mlxcel.engine.cache.disk.run import Identity, Run, StoredRun, file_name

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""Nobody waits longer for the disk: what it does not give by then is read from the prompt."""
CLOSE_S = 1.0
TROUBLE = (NotOurs, NotSound, OSError, ValueError, OverflowError, MemoryError, RuntimeError)
"""Any one file may give; the last is how MLX says that there is no memory."""
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
    """`read`, `is_stuck` and `close` are for the tick."""

    def __init__(
        self,
        folder: Path,
        checker: Checker,
        remove: Remove,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._checker = checker
        self._remove = remove
        self._clock = clock
        self.sound = self.unsound = self.foreign = 0
        """Files that were read, or skipped."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._began_s: float | None = None
        """With the file that is being read."""
        self._in_use: WeakValueDictionary[str, Loaded] = WeakValueDictionary()
        """What was read for others, and is held by them still: the same prefix is often wanted by
        many at once."""
        self._is_closed = False
        # A daemon: a disk that does not answer must not keep the process from ending.
        self._thread = Thread(target=self._run, name="cache-disk-read", daemon=True)

    def read(self, files: Sequence[str]) -> Future[Segments]:
        """One for each file, in their order. Raises nothing; who does not wait for it any longer
        cancels it, at whatever time."""
        if self._thread.ident is None:
            self._thread.start()
        job = _Job(tuple(files), Future())
        self._jobs.put(job)
        return job.answer

    @property
    def is_stuck(self) -> bool:
        """The disk does not answer."""
        began_s = self._began_s
        return began_s is not None and self._clock() - began_s > PATIENCE_S

    def glance(self, name: str) -> StoredRun | None:
        """On the calling thread, before the first `read`. None: not to be had."""
        path = self._folder / name
        try:
            head, ids = glance(path)
            run = self._checker.run(name, head, ids)
            return StoredRun(file=name, run=run, nbytes=path.stat().st_size)
        except TROUBLE as why:
            self.reject(name, why)
            return None

    def close(self) -> None:
        self._is_closed = True
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """A function of its own so that no answer lives on here while the next job is waited
        for."""
        job = self._jobs.get()
        if job is None:
            return False
        try:
            read = self._read_all(job)
        except Stopped:
            return True
        except Exception:  # the loop of a thread: a request waits for the answer
            log.exception("prompt cache on disk: reading failed")
            read = [Unsound(file=name, why="an unexpected error") for name in job.files]
        if job.answer.set_running_or_notify_cancel():
            job.answer.set_result(read)
        return True

    def _read_all(self, job: "_Job") -> Segments:
        """Raises Stopped."""

        def is_stopped() -> bool:
            return self._is_closed or job.answer.cancelled()

        return [self._read(name, is_stopped) for name in job.files]

    def _read(self, name: str, is_stopped: Callable[[], bool]) -> Loaded | Unsound:
        if is_stopped():
            raise Stopped
        if (known := self._in_use.get(name)) is not None:
            self.sound += 1
            return known
        self._began_s = self._clock()
        try:
            head, ids, loaded = read(self._folder / name, is_stopped)
            self._checker.run(name, head, ids)
        except TROUBLE as why:
            self.reject(name, why)
            return Unsound(file=name, why=str(why), is_removed=_is_final(why))
        finally:
            self._began_s = None
        self.sound += 1
        self._in_use[name] = loaded
        return loaded

    def reject(self, name: str, why: Exception) -> None:
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


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    files: tuple[str, ...]
    answer: Future[Segments]


def _is_final(why: Exception) -> bool:
    return isinstance(why, NotOurs | NotSound | FileNotFoundError)
