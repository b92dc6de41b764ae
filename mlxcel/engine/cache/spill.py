"""Between the store in memory and the files: what was kept is written, what was evicted is found
again, and what the files say of themselves is believed.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from mlxcel.engine.cache.disk.reader import PATIENCE_S
from mlxcel.engine.cache.disk.tier import (
    DiskTier,
    Gone,
    NotWritten,
    Refusal,
    Run,
    Segments,
    Unsound,
    Written,
    arrived,
)
from mlxcel.engine.cache.node import Node, Piece
from mlxcel.engine.cache.segment import Layers
from mlxcel.engine.cache.store import Found, PrefixStore
from mlxcel.engine.cache.worth import Worth
from mlxcel.worker.base import Progress

log = logging.getLogger(__name__)

CLOSE_S = 20.0
"""How long an ending worker goes on writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Files on their way into memory, for one prompt."""

    files: tuple[str, ...]
    read: Future[Segments]
    until_s: float
    ended_s: list[float] = field(default_factory=list)
    """When it was read, once it was."""

    def is_over(self, now_s: float) -> bool:
        """Read, or waited for long enough."""
        return self.read.done() or now_s >= self.until_s

    def give_up(self) -> None:
        """Nobody waits for it: what is not read yet is not read."""
        self.read.cancel()

    def outcome(self) -> Segments | None:
        """None: it was waited for too long, which is told."""
        if self.read.done():
            return self.read.result()
        self.give_up()
        log.warning(
            "prompt cache on disk: %d files were not read within %g s; the prompt is read anew",
            len(self.files),
            PATIENCE_S,
        )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixFetch(Fetch):
    found: Found
    began_s: float


@dataclass(frozen=True, slots=True)
class _Writing:
    node: Node
    run: Run


def nodes_of(run: Run, end: Node) -> Iterator[Node]:
    """What a run that ended with this node was split into since, from its end on."""
    return takewhile(lambda step: step.stop > run.start, end.upward())


class Spill:
    """Owned by the tick; the tier's threads touch the files."""

    def __init__(
        self,
        store: PrefixStore,
        tier: DiskTier,
        worth: Worth,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worth = worth
        self._passed_over = 0
        self._store = store
        self._tier = tier
        self._clock = clock
        self._writing: dict[str, _Writing] = {}

    def open(self, progress: Progress) -> None:
        """Makes known what earlier servers wrote."""
        for stored in self._tier.open(progress):
            run = stored.run
            piece = Piece(stored.file, 0, len(run.tokens))
            self._store.place(run.key, (*run.prefix, *run.tokens), run.start, piece)
            if not self._store.is_in(stored.file):
                # What it stands on is gone, or other files have all of it.
                self._tier.drop(stored.file)

    def write(self, node: Node, run: Run, layers: Layers) -> None:
        """The run of a node, as it was when it was kept."""
        self._writing[self._tier.write(run, layers)] = _Writing(node, run)

    def unwritten_above(self, node: Node, start: int) -> list[Node]:
        """What stands before token `start` of a node in memory alone, since it could not be
        written: nobody would find what is written behind it. From the root on."""
        above = [n for n in node.upward() if n.stop <= start]
        bare = [n for n in reversed(above) if n.held is not None and n.piece is None]
        if bare:
            writing = self._writing.values()
            coming = {step for one in writing for step in nodes_of(one.run, one.node)}
            bare = [n for n in bare if n not in coming]
        return bare

    def poll(self) -> None:
        """What has happened to the files since."""
        for event in self._tier.events():
            match event:
                case Written(file=file, run=run):
                    if (one := self._writing.pop(file, None)) is not None:
                        self._stored(one, Piece(file, 0, len(run.tokens)))
                case NotWritten(reason=Refusal.RESET):
                    pass  # by that name another one may be on its way
                case NotWritten(file=file):
                    self._writing.pop(file, None)
                case Gone(file=file):
                    self._store.gone(file)
        self._drop_cut_off()

    def fetch(self, found: Found) -> PrefixFetch | None:
        """None: the disk does not answer at present, or computing takes less time."""
        if self._tier.is_stuck:
            return None
        if not self.worth.is_fetch():
            self._pass_over()
            return None
        files = tuple(dict.fromkeys(node.piece.file for node in found.missing if node.piece))
        now_s = self._clock()
        fetch = PrefixFetch(
            files=files,
            read=self._tier.read(files),
            until_s=now_s + PATIENCE_S,
            found=found,
            began_s=now_s,
        )
        fetch.read.add_done_callback(lambda _: fetch.ended_s.append(self._clock()))
        return fetch

    def _pass_over(self) -> None:
        self._passed_over += 1
        if self._passed_over == 1:
            log.info("prompt cache on disk: passed over, %s (said once)", self.worth.told())

    def take(self, fetch: PrefixFetch) -> int:
        """Into the store, as far as it is sound and still wanted; the tokens that came."""
        if (segments := fetch.outcome()) is None:
            return 0
        read = dict(zip(fetch.files, segments, strict=True))
        came = 0
        # Anew: while the files were read, nodes may have been split, filled by others, or gone.
        found = self._store.find(fetch.found.key, fetch.found.tokens, explains=False)
        for node in found.missing:
            count = self._fill(node, read)
            if count is None:
                break  # what comes after it stands on nothing
            came += count
        self._tier.used(fetch.files)
        if fetch.ended_s:
            self.worth.fetched(came, fetch.ended_s[0] - fetch.began_s)
        return came

    def used(self, found: Found) -> None:
        """What is adopted from memory is no older on disk."""
        steps = () if found.node is None else found.node.upward()
        if files := {node.piece.file for node in steps if node.piece is not None}:
            self._tier.used(files)

    def _stored(self, one: _Writing, piece: Piece) -> None:
        self._store.stored(one.node, piece)
        if not self._store.is_in(piece.file):
            self._tier.drop(piece.file)  # what it stands on has gone meanwhile

    def _fill(self, node: Node, read: Mapping[str, Any]) -> int | None:
        piece = node.piece
        if piece is None or piece.file not in read:
            return None
        loaded = read[piece.file]
        if isinstance(loaded, Unsound):
            self._lost(node, loaded)
            return None
        self._store.fill(node, arrived(loaded).cut(piece.start, piece.stop))
        return len(node.tokens)

    def _lost(self, node: Node, why: Unsound) -> None:
        """Its file cannot be read. At once, so that what is read anew is written anew; the news of
        it may come later."""
        self._drop_cut_off()
        self._store.lost(node)
        if why.is_removed:
            self._tier.forget(why.file)
            self._drop_cut_off()
        else:
            # It may be read another time, by a later server, with what stands behind it.
            self._store.take_cut_off()

    def _drop_cut_off(self) -> None:
        for file in self._store.take_cut_off():
            if file not in self._writing:
                self._tier.drop(file)

    def reset(self) -> None:
        self._writing.clear()
        self._tier.reset()

    def stats(self) -> dict[str, Any]:
        return self._tier.stats() | {"passed_over": self._passed_over}

    def close(self) -> None:
        self._tier.close(CLOSE_S)
