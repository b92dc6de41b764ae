"""The thread that changes the folder: it writes, removes, and keeps files' times.

Knows jobs and answers with news; the tick's own view of the files is made of these.
"""

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from mlxcel.engine.cache.disk.files import Draft, Stopped, write
from mlxcel.engine.cache.disk.guard import (
    RETRY_S,
    DiskRules,
    FreeBytes,
    Refused,
    lacking,
    refusal_of,
)
from mlxcel.engine.cache.disk.news import LASTING, Gone, Loss, News, NotWritten, Refusal, Written
from mlxcel.engine.cache.disk.shelf import Item, Listing, Shelf, listed

log = logging.getLogger(__name__)

SWEEP_S = 60.0
"""Between two looks at the folder: for files that are too old, and for other servers' doings."""
FRESH_S = 5.0
"""A look at the folder that is older than that is repeated before anything is evicted: what we
have not used, another server may have."""


@dataclass(frozen=True, slots=True)
class Touch:
    names: tuple[str, ...]
    used_ns: int


@dataclass(frozen=True, slots=True)
class Remove:
    name: str
    reason: Loss


class Reset:
    """Remove all."""


class Stop:
    """The last job."""


Job = Draft | Touch | Remove | Reset | Stop


class Writer:
    """Owns the shelf. `news` is appended to on the thread and emptied on the tick."""

    def __init__(
        self,
        rules: DiskRules,
        mark: str,
        news: deque[News],
        *,
        clock: Callable[[], float],
        free_bytes: FreeBytes,
    ) -> None:
        self._rules = rules
        self._mark = mark
        self._news = news
        self._clock = clock
        self._free_bytes = free_bytes
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._is_abandoned = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cache-disk", daemon=True)
        self._shelf = Shelf()
        self._touched: set[str] = set()
        self._swept_s = clock()
        self._paused: tuple[Refusal, str] | None = None
        """Why nothing is tried until then."""
        self._retry_s = 0.0
        self._resets = 0
        """Written by the tick, and read on the thread."""
        self.totals = (0, 0)
        """Files and bytes on the shelf; replaced as one, so that any thread may look."""

    def start(self, listing: Listing) -> list[str]:
        """The files to begin with, in the order of start, without those that are too old or too
        much. Touches the folder on the calling thread, and is called once."""
        self._shelf.follow(listing)
        self._expire()
        self._shrink(self._shelf.nbytes - self._rules.capacity_bytes)
        self._count()
        items = self._shelf.items
        names = sorted(items, key=lambda name: (items[name].start, name))
        self._thread.start()
        return names

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def reset(self) -> None:
        """Removes all, at once: what waits to be written is refused, and what is being written
        is given up. On the tick."""
        self._resets += 1
        waiting: list[Job] = []
        with contextlib.suppress(Empty):
            while True:
                waiting.append(self._jobs.get_nowait())
        for job in waiting:
            if isinstance(job, Draft):
                self._refuse(job, Refusal.RESET, "the cache was emptied")
            else:
                self._jobs.put(job)
        self._jobs.put(Reset())

    def close(self, timeout_s: float) -> bool:
        """False: not all was written in that time, and the rest never is."""
        if not self._thread.is_alive():
            return True
        self._jobs.put(Stop())
        self._thread.join(timeout_s)
        in_time = not self._thread.is_alive()
        self._is_abandoned.set()
        self._thread.join(1.0)
        return in_time

    def _run(self) -> None:
        while self._turn():
            self._count()
        self._keep_times()
        self._count()

    def _turn(self) -> bool:
        """A function of its own so that no job, with its arrays, lives on while the next is
        waited for."""
        try:
            job = self._jobs.get(timeout=SWEEP_S)
        except Empty:
            job = Touch((), 0)
        try:
            self._do(job)
        except Exception:
            log.exception("prompt cache on disk: a job failed")
            if isinstance(job, Draft):
                self._refuse(job, Refusal.FAILED, "an unexpected error")
        return not isinstance(job, Stop)

    def _do(self, job: Job) -> None:
        match job:
            case Draft():
                self._write(job)
            case Touch(names=names, used_ns=used_ns):
                self._touched.update(self._shelf.touch(names, used_ns))
            case Remove(name=name, reason=reason):
                self._remove(name, reason)
            case Reset():
                for name in list(self._shelf.items):
                    self._remove(name, Loss.ASKED)
        if self._clock() - self._swept_s >= SWEEP_S:
            self._sweep()
        if self._jobs.empty():
            self._keep_times()

    def _write(self, draft: Draft) -> None:
        """Keeps no exception: its traceback would keep the arrays."""
        try:
            nbytes = self._written(draft)
        except Refused as why:
            self._refuse(draft, why.reason, why.detail)
        except OSError as why:
            self._refuse(draft, *refusal_of(why))
        except Stopped:
            if self._is_abandoned.is_set():
                self._refuse(draft, Refusal.CLOSED, "the server ends")
            else:
                self._refuse(draft, Refusal.RESET, "the cache was emptied")
        else:
            self._paused = None
            self._shelf.add(draft.name, Item(nbytes, draft.run.start, draft.used_ns))
            self._count()
            self._news.append(Written(file=draft.name, run=draft.run))

    def _written(self, draft: Draft) -> int:
        if self._is_abandoned.is_set():
            raise Stopped
        if self._paused is not None and self._clock() < self._retry_s:
            raise Refused(*self._paused)
        resets = self._resets
        self._rules.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(draft.nbytes)

        def is_stopped() -> bool:
            return self._is_abandoned.is_set() or self._resets != resets

        return write(self._rules.folder, draft, is_stopped)

    def _refuse(self, draft: Draft, reason: Refusal, detail: str) -> None:
        if reason in LASTING and self._clock() >= self._retry_s:
            self._paused, self._retry_s = (reason, detail), self._clock() + RETRY_S
        self._news.append(NotWritten(file=draft.name, run=draft.run, reason=reason, detail=detail))

    def _make_room(self, nbytes: int) -> None:
        missing = lacking(self._rules, self._shelf, nbytes, self._free_bytes)
        if missing and self._clock() - self._swept_s >= FRESH_S:
            self._sweep()
            missing = lacking(self._rules, self._shelf, nbytes, self._free_bytes)
        if self._shrink(missing) > 0:
            raise Refused(Refusal.READ_ONLY, "older files there cannot be removed to make room")

    def _shrink(self, missing: int) -> int:
        """What is still missing when all that may go has gone."""
        for name in self._shelf.by_use() if missing > 0 else ():
            if missing <= 0:
                break
            missing -= self._remove(name, Loss.ROOM)
        return missing

    def _remove(self, name: str, reason: Loss) -> int:
        """Bytes that were freed; a file that cannot be removed stays on the shelf, unless nobody
        shall have it anyway."""
        if reason is not Loss.FOREIGN:
            try:
                (self._rules.folder / name).unlink(missing_ok=True)
            except OSError as why:
                log.debug("%s cannot be removed: %s", name, why)
                if reason in (Loss.ROOM, Loss.AGE):
                    return 0
        item = self._shelf.remove(name)
        self._news.append(Gone(file=name, reason=reason))
        return 0 if item is None else item.nbytes

    def _sweep(self) -> None:
        self._swept_s = self._clock()
        with contextlib.suppress(OSError):
            for name in self._shelf.follow(listed(self._rules.folder, self._mark)):
                self._news.append(Gone(file=name, reason=Loss.VANISHED))
        self._expire()

    def _expire(self) -> None:
        if self._rules.ttl_s > 0:
            oldest_ns = int((self._clock() - self._rules.ttl_s) * 1e9)
            for name in self._shelf.older_than(oldest_ns):
                self._remove(name, Loss.AGE)

    def _keep_times(self) -> None:
        """So that recency survives a restart."""
        for name in self._touched & self._shelf.items.keys():
            used_ns = self._shelf.items[name].used_ns
            with contextlib.suppress(OSError):
                os.utime(self._rules.folder / name, ns=(used_ns, used_ns))
        self._touched.clear()

    def _count(self) -> None:
        self.totals = (len(self._shelf.items), self._shelf.nbytes)
