"""Between the store in memory and the files: what was kept is written, what was evicted is found
again, and what the files say of themselves is believed.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from mlxcel.engine.cache.disk.tier import (
    DiskTier,
    Gone,
    NotWritten,
    Run,
    Segments,
    Unsound,
    Written,
    arrived,
)
from mlxcel.engine.cache.node import Node, Piece
from mlxcel.engine.cache.segment import Layers
from mlxcel.engine.cache.store import Found, PrefixStore
from mlxcel.worker.base import Progress

CLOSE_S = 20.0
"""How long an ending worker goes on writing."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Files on their way into memory, for one prompt."""

    found: Found
    files: tuple[str, ...]
    read: Future[Segments]

    @property
    def is_done(self) -> bool:
        return self.read.done()


class Spill:
    """Owned by the tick; the tier's threads touch the files."""

    def __init__(self, store: PrefixStore, tier: DiskTier) -> None:
        self._store = store
        self._tier = tier
        self._writing: dict[str, Node] = {}

    def open(self, progress: Progress) -> None:
        """Makes known what earlier servers wrote."""
        for stored in self._tier.open(progress):
            run = stored.run
            piece = Piece(stored.file, 0, len(run.tokens))
            if not self._store.place(run.key, (*run.prefix, *run.tokens), run.start, piece):
                self._tier.drop(stored.file)  # what it stands on is gone: nobody can reach it

    def write(self, node: Node, run: Run, layers: Layers) -> None:
        """The run of a node, as it was when it was kept."""
        self._writing[self._tier.write(run, layers)] = node

    def poll(self) -> None:
        """What has happened to the files since."""
        for event in self._tier.events():
            match event:
                case Written(file=file, run=run):
                    node = self._writing.pop(file, None)
                    if node is not None:
                        piece = Piece(file, 0, len(run.tokens))
                        self._store.stored(node, piece)
                case NotWritten(file=file):
                    self._writing.pop(file, None)
                case Gone(file=file):
                    self._store.gone(file)

    def fetch(self, found: Found) -> Fetch:
        files = tuple(dict.fromkeys(node.piece.file for node in found.missing if node.piece))
        return Fetch(found, files, self._tier.read(files))

    def take(self, fetch: Fetch) -> int:
        """Into the store, as far as it is sound and still wanted; the tokens that came."""
        read = dict(zip(fetch.files, fetch.read.result(), strict=True))
        came = 0
        # Anew: while the files were read, nodes may have been split, filled by others, or gone.
        found = self._store.find(fetch.found.key, fetch.found.tokens)
        for node in found.missing:
            count = self._fill(node, read)
            if count is None:
                break  # what comes after it stands on nothing
            came += count
        self._tier.used(fetch.files)
        return came

    def used(self, found: Found) -> None:
        """What is adopted from memory is no older on disk."""
        steps = () if found.node is None else found.node.upward()
        if files := {node.piece.file for node in steps if node.piece is not None}:
            self._tier.used(files)

    def _fill(self, node: Node, read: Mapping[str, Any]) -> int | None:
        piece = node.piece
        if piece is None or piece.file not in read:
            return None
        loaded = read[piece.file]
        if isinstance(loaded, Unsound):
            self._store.lost(node)
            return None
        self._store.fill(node, arrived(loaded).cut(piece.start, piece.stop))
        return len(node.tokens)

    def reset(self) -> None:
        self._tier.reset()

    def stats(self) -> dict[str, Any]:
        return self._tier.stats()

    def close(self) -> None:
        self._tier.close(CLOSE_S)
