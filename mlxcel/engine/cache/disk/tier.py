"""The disk tier, as the tick sees it: nothing here waits for the disk but `open` and `close`.

Knows runs and files; knows no tree, and not when a run is worth writing or reading.
"""

import contextlib
import logging
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from mlxcel.engine.cache.blocks import KINDS, digest_of
from mlxcel.engine.cache.disk.arrays import Loaded, arrived, outgoing, sheets_of
from mlxcel.engine.cache.disk.files import TEMPORARY, Draft, is_abandoned
from mlxcel.engine.cache.disk.guard import DiskRules, FreeBytes, free_on_disk, refusal_of
from mlxcel.engine.cache.disk.head import NotSound, head_of
from mlxcel.engine.cache.disk.news import (
    LASTING,
    Gone,
    Loss,
    News,
    NotWritten,
    Refusal,
    Unsound,
    Written,
)
from mlxcel.engine.cache.disk.reader import Checker, Reader, Segments
from mlxcel.engine.cache.disk.run import SUFFIX, Identity, Run, StoredRun, file_name
from mlxcel.engine.cache.disk.shelf import Listing, listed
from mlxcel.engine.cache.disk.writer import Remove, Touch, Writer
from mlxcel.engine.cache.segment import Layers
from mlxcel.worker.base import Progress

__all__ = [
    "DiskRules",
    "DiskTier",
    "Gone",
    "Identity",
    "Loaded",
    "Loss",
    "NotWritten",
    "Refusal",
    "Run",
    "Segments",
    "StoredRun",
    "Unsound",
    "Written",
    "arrived",
]

log = logging.getLogger(__name__)

QUEUE_BYTES = 1024 * 1024 * 1024
"""KV that may wait for the disk, and stays in memory meanwhile."""


class DiskTier:
    """Owned by the tick. A writing and a reading thread touch the files; they send news."""

    def __init__(
        self,
        rules: DiskRules,
        identity: Identity,
        *,
        clock: Callable[[], float] = time.time,
        hash_kind: str = "sha256",
        free_bytes: FreeBytes = free_on_disk,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        """`clock` counts from 1970, as files' times do; `free_bytes` of the disk with a folder.
        Raises StartupError for a hash that is not to be had."""
        digest_of(hash_kind)
        kind = KINDS[hash_kind]
        self._rules = rules
        self._identity = identity
        self._clock = clock
        self._kind = kind
        self._mark = identity.mark(kind)
        self._most_waiting = min(queue_bytes, rules.capacity_bytes)
        self._arriving: deque[News] = deque()
        self._news: deque[News] = deque()
        self._writer = Writer(rules, self._mark, self._arriving, clock=clock, free_bytes=free_bytes)
        checker = Checker(identity, kind)
        self._reader = Reader(
            rules.folder, checker, lambda n, why: self._writer.put(Remove(n, why))
        )
        self._known: set[str] = set()
        """On disk, as far as the news tell."""
        self._waiting: dict[str, int] = {}
        """Bytes of those that are to be written."""
        self._is_writable = False
        self._told: set[Refusal] = set()
        """Trouble that was logged."""
        self._writes = self._write_failures = self._reads = self._others = 0
        self._lost: Counter[Loss] = Counter()

    def open(self, progress: Progress) -> Iterator[StoredRun]:
        """Makes the folder, and gives what earlier servers wrote there, in the order of start:
        headers are read as the caller goes on, so that not all of them are in memory at once. To
        be called once, before anything else. A folder that cannot be used is a warning."""
        listing = self._listed()
        self._others = sum(name.endswith(SUFFIX) for name in listing.others)
        names = self._writer.start(listing)
        self._known.update(names)
        return self._runs(names, progress)

    def write(self, run: Run, layers: Layers) -> str:
        """The file it will be in; `Written` or `NotWritten` follows. What is there already, or on
        its way, is no work."""
        self._collect()
        name = file_name(run, self._mark, self._kind)
        if name in self._waiting:
            return name
        if name in self._known:
            self._news.append(Written(file=name, run=run))
            self.used([name])
            return name
        head = head_of(self._identity, run, sheets_of(layers))
        # One alone may be larger: a long prompt of a large model is.
        waiting = sum(self._waiting.values())
        if waiting and waiting + head.data_bytes > self._most_waiting:
            detail = f"{self._most_waiting} bytes at most wait for the disk, which is slower"
            reason = Refusal.QUEUE_FULL
            self._take(NotWritten(file=name, run=run, reason=reason, detail=detail))
            return name
        self._waiting[name] = head.data_bytes
        arrays, now_ns = outgoing(layers), self._now_ns()
        self._writer.put(Draft(name=name, run=run, head=head, layers=arrays, used_ns=now_ns))
        return name

    def read(self, files: Sequence[str]) -> Future[Segments]:
        """One for each file, in their order; `arrived` makes a segment of what is sound."""
        self._reads += len(files)
        return self._reader.read(files)

    @property
    def is_stuck(self) -> bool:
        """What is asked for now would be waited for in vain."""
        return self._reader.is_stuck

    def events(self) -> Iterator[News]:
        """What has happened since they were last asked for."""
        self._collect()
        while self._news:
            yield self._news.popleft()

    def used(self, files: Iterable[str]) -> None:
        """All at the same time, which keeps prefixes longer than what stands on them."""
        self._writer.put(Touch(tuple(files), self._now_ns()))

    def forget(self, file: str) -> None:
        """It was `Unsound`: what is written under that name is written anew."""
        self._known.discard(file)

    def condemn(self, file: str, why: str) -> None:
        """It was read as it was written, and yet is not what it should be: `Gone` follows."""
        self._reader.reject(file, NotSound(why))
        self.forget(file)

    def drop(self, file: str) -> None:
        self._known.discard(file)
        self._remove(file, Loss.ASKED)

    def reset(self) -> None:
        """Drops all files of this identity, other servers' too, and what waits to be written;
        `Gone` or `NotWritten` follows for each."""
        self._known.clear()
        self._writer.reset()
        self._waiting.clear()

    def stats(self) -> dict[str, Any]:
        self._collect()
        files, nbytes = self._writer.totals
        return {
            "path": str(self._rules.folder),
            "bytes": nbytes,
            "capacity_bytes": self._rules.capacity_bytes,
            "files": files,
            "writes": self._writes,
            "write_failures": self._write_failures,
            "reads": self._reads,
            "hits": self._reader.sound,
            "unsound": self._reader.unsound,
            "foreign": self._others + self._reader.foreign,
            "expired": self._lost[Loss.AGE],
            "evictions": self._lost[Loss.ROOM],
            "queue_bytes": sum(self._waiting.values()),
            "is_writable": self._is_writable,
        }

    def close(self, timeout_s: float) -> None:
        """Writes what waits, as far as it gets in that time."""
        self._writer.close(timeout_s)
        self._reader.close()
        self._collect()

    def _remove(self, file: str, reason: Loss) -> None:
        """On any thread."""
        self._writer.put(Remove(file, reason))

    def _listed(self) -> Listing:
        folder = self._rules.folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            listing = listed(folder, self._mark)
        except OSError as why:
            log.warning(
                "cache.disk.path=%s cannot be used (%s): nothing is kept on disk; name a folder "
                "that this user may make and write",
                folder,
                why.strerror,
            )
            self._told.add(refusal_of(why)[0])
            return Listing({}, ())
        self._is_writable = self._try_folder()
        for name in listing.others:
            if name.endswith(TEMPORARY) and is_abandoned(folder / name):
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
        return listing

    def _try_folder(self) -> bool:
        try:
            with tempfile.NamedTemporaryFile(prefix=".", suffix=TEMPORARY, dir=self._rules.folder):
                return True
        except OSError as why:
            reason, detail = refusal_of(why)
            log.warning(
                "cache.disk.path=%s cannot be written (%s): what is there is used, nothing is "
                "added",
                self._rules.folder,
                detail,
            )
            self._told.add(reason)
            return False

    def _runs(self, names: Sequence[str], progress: Progress) -> Iterator[StoredRun]:
        sound = nbytes = 0
        for done, name in enumerate(names):
            progress("reading the prompt cache on disk", done / len(names))
            if (stored := self._reader.glance(name)) is not None:
                sound += 1
                nbytes += stored.nbytes
                yield stored
        reader = self._reader
        log.log(
            logging.WARNING if reader.unsound else logging.INFO,
            "prompt cache on disk: %d runs of %d bytes in %s; skipped: %d unsound, %d foreign, "
            "%d expired",
            sound,
            nbytes,
            self._rules.folder,
            reader.unsound,
            self._others + reader.foreign,
            self._lost[Loss.AGE],
        )

    def _collect(self) -> None:
        while self._arriving:
            self._take(self._arriving.popleft())

    def _take(self, news: News) -> None:
        match news:
            case Written(file=file):
                self._waiting.pop(file, None)
                self._known.add(file)
                self._writes += 1
                self._well()
            case NotWritten(file=file, reason=Refusal.RESET):
                pass  # as it was asked to
            case NotWritten(file=file):
                self._waiting.pop(file, None)
                self._write_failures += 1
                self._ill(news)
            case Gone(file=file, reason=reason):
                self._known.discard(file)
                self._lost[reason] += 1
        self._news.append(news)

    def _well(self) -> None:
        self._is_writable = True
        if self._told & LASTING:
            log.info("prompt cache on disk: %s is written again", self._rules.folder)
            self._told -= LASTING

    def _ill(self, news: NotWritten) -> None:
        """One line for each kind of trouble, until it is over."""
        if news.reason in LASTING:
            self._is_writable = False
        if news.reason in self._told:
            return
        self._told.add(news.reason)
        log.warning("prompt cache on disk: not written to %s: %s", self._rules.folder, news.detail)

    def _now_ns(self) -> int:
        return int(self._clock() * 1e9)
