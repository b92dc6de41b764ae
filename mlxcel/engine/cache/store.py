"""KV of prompts that were read, found again by their tokens (engine contract, cache 5 and 6).

Entries share what they have in common: a radix tree holds each run of tokens once. What is
adopted is never changed and outlives its eviction for as long as somebody holds it. Knows nothing
of files but that they may hold runs (`Piece`), and nothing of requests.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from mlxcel.core.cache import Reject
from mlxcel.engine.cache.adopt import SessionRules, StoreRules
from mlxcel.engine.cache.ages import Ages
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.found import Found, Pieces, look, pieces_of
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.node import Match, Node, Piece, walk
from mlxcel.engine.cache.segment import Payload
from mlxcel.engine.cache.tree import Tree

__all__ = ["Found", "PrefixStore", "SessionRules", "StoreRules"]

log = logging.getLogger(__name__)


class PrefixStore:
    """Owned by the tick."""

    def __init__(
        self,
        rules: StoreRules,
        counters: Counters,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = rules
        self._counters = counters
        self._tree = Tree()
        self._ages = Ages(rules, counters, self._tree, clock)
        self._has_warned = False

    @property
    def bytes(self) -> int:
        """Of all payloads held."""
        return self._tree.bytes

    @property
    def entries(self) -> int:
        """In memory."""
        return len(self._ages.held)

    # Look-up

    def find(self, key: CacheKey, tokens: Sequence[int], *, explains: bool = True) -> Found:
        """Counts nothing, and is no use of what it finds; what is too old goes first. `explains`
        as of `look`."""
        self._ages.expire()
        return look(self._tree, self._rules, key, tuple(tokens), explains=explains)

    def used(self, found: Found) -> None:
        """It was adopted: the entry used last of those that begin with it is used again."""
        node = found.node
        if node is not None and node.is_attached and node.holders and node.latest is not None:
            self._ages.touch(node.latest)

    def newest(self, session: str) -> tuple[CacheKey, tuple[int, ...], Pieces] | None:
        """What a session kept last, whole; None where it has nothing in memory."""
        self._ages.expire()
        kept = self._tree.sessions.get(session)
        if kept is None or not kept.held:
            return None
        entry = kept.newest if kept.newest in kept.held else next(reversed(kept.held))
        assert entry is not None
        nodes = tuple(reversed(tuple(entry.node.upward())))
        return entry.node.key, entry.node.between(0, entry.length), pieces_of(nodes, entry.length)

    # Keeping

    def insert(
        self, key: CacheKey, tokens: Sequence[int], cut: Callable[[int, int], Payload]
    ) -> list[Node]:
        """`cut(start, stop)` makes the KV of tokens start..stop; it is called once, for the tail
        that is missing, or not at all. The new nodes, which stand in no file yet."""
        self._ages.expire()
        ids = tuple(tokens)
        sessions = self._ages.rules_of(key.session)
        if not ids or (sessions is not None and len(ids) > sessions.max_tokens):
            return []
        match = self._walk(key, ids)
        if match.held == len(ids):
            self._keep_again(match)
            return []
        payload = cut(match.held, len(ids))
        if self._is_oversized(payload.nbytes + _held_bytes(match), len(ids)):
            return []
        node = self._laid(key, ids, match, payload)
        self._counters.inserts += 1
        self._ages.keep(node)
        return [node] if node.held is not None and node.piece is None else []

    def _walk(self, key: CacheKey, ids: tuple[int, ...]) -> Match:
        root = self._tree.known(key)
        return Match((), 0) if root is None else walk(root, ids)

    def _laid(self, key: CacheKey, ids: tuple[int, ...], match: Match, payload: Payload) -> Node:
        """The node at the end of the tokens, all of them in memory."""
        held = match.held
        at = self._tree.end_of(key, match)
        for node in tuple(at.upward()):
            if node.held is None:
                self._tree.hold(node, payload.cut(node.start - held, node.stop - held))
        if match.length < len(ids):
            at = self._tree.grow(at, ids[match.length :])
            self._tree.hold(at, payload.cut(at.start - held, payload.tokens))
        return at

    def _keep_again(self, match: Match) -> None:
        """All of it is in memory. Where beginnings of entries can be adopted, they need no entry
        of their own."""
        last = match.nodes[-1]
        entry = last.entry if last.stop == match.length else None
        if entry is None and self._rules.is_apc:
            entry = last.latest
        if entry is not None and entry.is_held:
            self._ages.touch(entry)
            return
        self._counters.inserts += 1
        self._ages.keep(self._tree.end_of(last.key, match))

    def _is_oversized(self, nbytes: int, length: int) -> bool:
        capacity = self._rules.capacity_bytes
        if capacity is None or nbytes <= capacity:
            return False
        self._counters.rejections_oversized += 1
        now_ms = int(time.time() * 1000)
        self._counters.reject(Reject.OVERSIZED, None, length, 0, now_ms)
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "KV of %d tokens has %d bytes and does not fit into the prompt cache of %d bytes: "
                "it is not kept (said once); raise cache.prompt.capacity_bytes",
                length,
                nbytes,
                capacity,
            )
        return True

    def take_fresh(self) -> list[Node]:
        """Nodes that were given a payload since this was last asked, and have it still. Lazy ones
        are to be evaluated, or they keep alive what they were cut from."""
        return self._tree.take_fresh()

    # Disk

    def fill(self, node: Node, payload: Payload) -> None:
        """A run was read back. Nothing, where it is known no more, what stands before it is not in
        memory, or somebody else was quicker."""
        run = _run(node, payload.tokens)
        if not node.is_attached or run is None or node.held is not None:
            return
        before = run[0].parent
        assert before is not None
        if before.parent is not None and before.held is None:
            return
        for part in run:
            if part.held is None:
                start = part.start - run[0].start
                self._tree.hold(part, payload.cut(start, start + len(part.tokens)))
        self._ages.keep(node, is_asked=False)

    def lost(self, node: Node) -> None:
        """What a node holds in memory is not sound, nor what stands on it: all that leaves memory.
        Where it is not in memory: its file cannot be read."""
        if not node.is_attached:
            return
        if node.held is None:
            assert node.piece is not None
            self.gone(node.piece.file)
            return
        ends = [below.entry for below in node.downward() if below.entry is not None]
        for entry in ends:
            if entry.is_held:
                self._ages.release(entry)

    def gone(self, file: str) -> None:
        """A file was removed: what stood in it alone goes, with what stands on it."""
        nodes = self._tree.of_file(file)
        for node in nodes:
            self._tree.put(node, None)
        for node in nodes:
            if node.is_attached and node.held is None:
                self._tree.uproot(node)

    def take_cut_off(self) -> list[str]:
        """Files that nobody can reach any more: what stands before them is known no longer."""
        return self._tree.take_cut_off()

    def is_in(self, file: str) -> bool:
        """Whether anything that is known stands in it."""
        return bool(self._tree.of_file(file))

    def stored(self, node: Node, piece: Piece) -> None:
        """The run that a node had when `insert` gave it stands in a file, whatever became of the
        node since."""
        length = piece.stop - piece.start
        run = _run(node, length) if node.is_attached else None
        if run is None:
            if node.root.is_current:
                tokens = node.between(0, node.stop)
                self.place(node.key, tokens, node.stop - length, piece)
            return
        for part in run:
            start = part.start - run[0].start
            self._tree.put(part, piece.cut(start, start + len(part.tokens)))

    def place(self, key: CacheKey, tokens: Sequence[int], start: int, piece: Piece) -> bool:
        """Tokens from `start` on stand in a file. False: what stands before them is not known, so
        that they are of no use."""
        ids = tuple(tokens)
        match = self._walk(key, ids)
        if match.length < start or start >= len(ids):
            return False
        self._put_known(match, start, piece)
        if match.length < len(ids):
            at = self._tree.end_of(key, self._walk(key, ids))
            leaf = self._tree.grow(at, ids[match.length :])
            self._tree.put(leaf, piece.cut(leaf.start - start, leaf.stop - start))
            self._tree.enter(leaf, is_held=False)
            if self._rules.is_apc:
                self._strike_on_disk(leaf)
        return True

    def _put_known(self, match: Match, start: int, piece: Piece) -> None:
        """Give the piece to those nodes of a match that stand in no file."""
        for node in match.nodes:
            if node.piece is not None or node.stop <= start:
                continue
            if node.start < start:
                self._tree.split(node, start - node.start)
            part = node
            if node.stop > match.length:
                part = self._tree.split(node, match.length - node.start)
            self._tree.put(part, piece.cut(part.start - start, part.stop - start))

    def _strike_on_disk(self, leaf: Node) -> None:
        for above in tuple(leaf.upward())[1:]:
            if above.entry is not None and not above.entry.is_held:
                self._tree.strike(above.entry)

    # Bounds

    def fit(self, limit_bytes: int) -> None:
        """Evict the least recently used until no more bytes are held."""
        self._ages.fit(limit_bytes)

    def reset(self) -> tuple[int, int]:
        """Forget all. Bytes and entries that were in memory."""
        freed = self.bytes, self.entries
        self._tree.clear()
        self._ages.held.clear()
        return freed

    def check(self) -> None:
        """Our own invariants, for tests."""
        self._tree.check()
        self._ages.check()

    def stats(self) -> dict[str, Any]:
        """The fields of `StoreNumbers`. Blocks are those of tokens that entries in memory have;
        two keys never share one."""
        block = self._rules.block
        lengths = [entry.length for entry in self._ages.held]
        held = [node for node in self._tree.nodes() if node.held is not None]
        full = sum(node.stop // block - node.start // block for node in held)
        return {
            "entries": self.entries,
            "bytes": self.bytes,
            "capacity_bytes": self._rules.capacity_bytes,
            "max_entries": self._rules.max_entries,
            "total_blocks_stored": sum(-(-length // block) for length in lengths),
            "unique_block_hashes": full + sum(length % block > 0 for length in lengths),
            "apc_active_entries": self.entries if self._rules.is_apc else 0,
        }


def _held_bytes(match: Match) -> int:
    """Of what agrees and is in memory."""
    return sum(
        node.held.nbytes * (min(node.stop, match.length) - node.start) // len(node.tokens)
        for node in match.nodes
        if node.held is not None
    )


def _run(node: Node, length: int) -> list[Node] | None:
    """The nodes that a run which ends with this one was split into since; None: it did not
    become these."""
    run: list[Node] = []
    for part in node.upward():
        run.insert(0, part)
        length -= len(part.tokens)
        if length <= 0:
            break
    return run if length == 0 else None
