"""Between whole states in memory and their files: what is still kept when the worker has nothing
to do is written, and what earlier servers wrote, or memory has no more, is found again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxcel.engine.cache.disk.reader import PATIENCE_S
from mlxcel.engine.cache.disk.tier import (
    DiskTier,
    Gone,
    Loss,
    NotWritten,
    Refusal,
    Run,
    Unsound,
    Written,
    arrived,
)
from mlxcel.engine.cache.keeping import EVALUATION_ERRORS
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.shelf import WIDTH, Snapshot, Sorted, packed, unpacked
from mlxcel.engine.cache.snapshots import Origin
from mlxcel.engine.cache.spill import CLOSE_S, Fetch
from mlxcel.engine.cache.state_files import (
    Kinds,
    NotAState,
    check_kinds,
    packed_state,
    unpacked_state,
)
from mlxcel.engine.cache.states import State
from mlxcel.worker.base import Progress

log = logging.getLogger(__name__)

FOR_GOOD = frozenset({Refusal.TOO_LARGE, Refusal.CLOSED})
"""Refusals that the next attempt would meet again."""
LOST = frozenset({Loss.UNSOUND, Loss.VANISHED})
"""Files that were not given up for others: what they held is worth another one."""
POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    """A state in a file."""

    key: CacheKey
    data: bytes
    """Its tokens, packed."""
    file: str
    origin: str | None
    """None: an earlier server wrote it, and only the file itself knows."""

    @property
    def length(self) -> int:
        return len(self.data) // WIDTH

    @property
    def place(self) -> tuple[CacheKey, bytes]:
        return self.key, self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFetch(Fetch):
    filed: Filed
    resets: int


class StateSpill:
    """Owned by the tick; the tier's threads touch the files."""

    def __init__(
        self, tier: DiskTier, kinds: Kinds, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tier = tier
        self._kinds = kinds
        self._clock = clock
        self._shelves: dict[CacheKey, Sorted[Filed]] = {}
        self._files: dict[str, Filed] = {}
        self._writing: dict[str, Filed] = {}
        self._settled: set[tuple[CacheKey, bytes]] = set()
        """What memory has and need not be written, be it that its file went to make room: two that
        are too much together would be written in turn for ever."""
        self._resets = 0

    def open(self, progress: Progress) -> None:
        """Makes known what earlier servers wrote."""
        for stored in self._tier.open(progress):
            run = stored.run
            self._add(Filed(key=run.key, data=packed(run.tokens), file=stored.file, origin=None))

    def write(self, kept: Sequence[Snapshot]) -> None:
        """Those that were not written yet; they are all that memory has, evaluated. Raises
        nothing."""
        self._settled &= {(entry.key, entry.data) for entry in kept}
        for entry in kept:
            place = (entry.key, entry.data)
            if place not in self._settled:
                self._settled.add(place)
                if self._filed(*place) is None:
                    self._write(entry)

    def poll(self) -> None:
        """What has happened to the files since."""
        for event in self._tier.events():
            match event:
                case Written(file=file):
                    if (filed := self._writing.pop(file, None)) is not None:
                        self._add(filed)
                        self._drop_superseded(filed)
                case NotWritten(reason=Refusal.RESET):
                    pass  # by that name another one may be on its way
                case NotWritten(file=file, reason=reason):
                    filed = self._writing.pop(file, None)
                    if filed is not None and reason not in FOR_GOOD:
                        self._settled.discard(filed.place)
                case Gone(file=file, reason=reason):
                    filed = self._remove(file)
                    if filed is not None and reason in LOST:
                        self._settled.discard(filed.place)

    def find(self, key: CacheKey, tokens: Sequence[int]) -> Filed | None:
        """The longest state of which the prompt has all the tokens and at least one more."""
        shelf = self._shelves.get(key)
        return None if shelf is None else next(shelf.beginnings(packed(tokens)), None)

    def fetch(self, filed: Filed) -> StateFetch | None:
        """None: the disk does not answer at present."""
        if self._tier.is_stuck:
            return None
        files = (filed.file,)
        until_s = self._clock() + PATIENCE_S
        read = self._tier.read(files)
        return StateFetch(files=files, read=read, until_s=until_s, filed=filed, resets=self._resets)

    def take(self, fetch: StateFetch) -> tuple[State, Origin] | None:
        """What was read, not evaluated; None where it is not sound, late, or nobody is to have it
        any more."""
        segments = fetch.outcome()
        if segments is None or fetch.resets != self._resets:
            return None
        (loaded,), filed = segments, fetch.filed
        if isinstance(loaded, Unsound):
            # At once, so that what is read anew is written anew; the news may come later.
            self._lose(filed)
            if loaded.is_removed:
                self._tier.forget(filed.file)
            return None
        try:
            state, origin = unpacked_state(arrived(loaded).layers, filed.length, self._kinds)
        except NotAState as why:
            self._lose(filed)
            self._tier.condemn(filed.file, str(why))
            return None
        if filed.file in self._files:
            self._files[filed.file] = replace(filed, origin=origin)
        self._settled.add(filed.place)
        self._tier.used(fetch.files)
        return state, origin

    def used(self, key: CacheKey, data: bytes) -> None:
        """What is adopted from memory is no older on disk."""
        if (filed := self._filed(key, data)) is not None:
            self._tier.used([filed.file])

    def reset(self) -> None:
        self.poll()
        self._resets += 1
        self._shelves.clear()
        self._files.clear()
        self._writing.clear()
        self._settled.clear()
        self._tier.reset()

    def stats(self) -> dict[str, Any]:
        return self._tier.stats()

    def close(self) -> None:
        """Waits for what is being written, so that what it supersedes can go."""
        until_s = self._clock() + CLOSE_S
        self.poll()
        while self._writing and self._clock() < until_s:
            time.sleep(POLL_S)
            self.poll()
        self._tier.close(max(0.0, until_s - self._clock()))

    def check(self) -> None:
        """Our own invariants, for tests."""
        assert all(shelf.sorted for shelf in self._shelves.values()), "a key without files"
        placed = [filed for shelf in self._shelves.values() for filed in shelf.sorted]
        assert {filed.place for filed in placed} == {one.place for one in self._files.values()}
        assert len(placed) == len(self._files)
        assert all(file == filed.file for file, filed in self._files.items())

    def _write(self, entry: Snapshot) -> None:
        run = Run(key=entry.key, prefix=(), tokens=unpacked(entry.data))
        try:
            check_kinds(entry.state.caches, self._kinds)
            file = self._tier.write(run, packed_state(entry.state, entry.origin))
        except (NotAState, *EVALUATION_ERRORS) as why:
            log.warning("a state of %d tokens is not written: %s", entry.length, why)
            return
        self._writing[file] = Filed(key=entry.key, data=entry.data, file=file, origin=entry.origin)

    def _drop_superseded(self, filed: Filed) -> None:
        """As memory has done: the next of the same origin takes its place."""
        for older in list(self._shelves[filed.key].beginnings(filed.data)):
            if self._files[older.file].origin == filed.origin:
                self._remove(older.file)
                self._tier.drop(older.file)

    def _lose(self, filed: Filed) -> None:
        self._remove(filed.file)
        self._settled.discard(filed.place)

    def _filed(self, key: CacheKey, data: bytes) -> Filed | None:
        shelf = self._shelves.get(key)
        return None if shelf is None else shelf.get(data)

    def _add(self, filed: Filed) -> None:
        self._remove(filed.file)
        self._shelves.setdefault(filed.key, Sorted()).add(filed)
        self._files[filed.file] = filed

    def _remove(self, file: str) -> Filed | None:
        """Nothing, where it is not known."""
        filed = self._files.pop(file, None)
        if filed is not None:
            shelf = self._shelves[filed.key]
            shelf.remove(filed)
            if not shelf.sorted:
                del self._shelves[filed.key]
        return filed
