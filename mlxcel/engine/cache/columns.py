"""Keeping KV by columns: families whose every layer attends to every token.

A row shares nothing with what is kept: it adopts a copy of its prefix, and of what it has read
only the part is copied out that is not kept yet.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import mlx.core as mx

from mlxcel.core.cache import CacheTag, Source
from mlxcel.engine.cache.counters import Counters, StoreNumbers
from mlxcel.engine.cache.disk.tier import DiskTier, Run
from mlxcel.engine.cache.keeping import EVALUATION_ERRORS, Numbers
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.look import Look
from mlxcel.engine.cache.node import Node
from mlxcel.engine.cache.segment import Layers, Segment, joined
from mlxcel.engine.cache.spill import Fetch, PrefixFetch, Spill, nodes_of
from mlxcel.engine.cache.store import Found, PrefixStore, StoreRules
from mlxcel.engine.cache.system_prefix import SystemPrefix
from mlxcel.engine.cache.worth import Worth
from mlxcel.engine.kv.batch import KVBatch, KVColumns
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.kv.parts import are_whole, caches_from, row_parts
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.prompt import Reading
from mlxcel.worker.base import Progress

log = logging.getLogger(__name__)

NO_TOKEN = -1
STEP = 256
"""Columns a row's caches grow by: room for the rest of a prompt saves copying it once more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unwritten:
    """A node as it was when it was kept, however it is split since."""

    node: Node
    run: Run
    segment: Segment


@dataclass(slots=True, eq=False)
class _Turn:
    """What was kept in one turn, and is not waited for."""

    nodes: list[Node] = field(default_factory=list)
    """Given something to hold, by whatever way."""
    unwritten: list[_Unwritten] = field(default_factory=list)


class ColumnKeeping:
    """Implements `Keeping`."""

    def __init__(
        self,
        rules: StoreRules,
        counters: Counters,
        *,
        plan: KVPlan,
        system: SystemPrefix | None = None,
        system_lora: tuple[float, ...] = (),
        token_bytes: int = 1,
    ) -> None:
        """`system_lora`: the scales under which the KV of system messages is good.
        `token_bytes`: of the KV of one token."""
        self._worth = Worth(token_bytes)
        self._least = rules.min_prefix
        self._system_lora = system_lora
        self.store = PrefixStore(rules, counters)
        self.spill: Spill | None = None
        self._counters = counters
        self._plan = plan
        self._system = system
        self._older = _Turn()
        self._unwritten: list[_Unwritten] = []

    def write_to(self, tier: DiskTier, progress: Progress) -> None:
        """From now on what is kept is written there, and what was written before is found."""
        self.spill = Spill(self.store, tier, self._worth)
        self.spill.open(progress)

    @property
    def nbytes(self) -> int:
        return self.store.bytes

    @property
    def entries(self) -> int:
        return self.store.entries

    def look(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> Look:
        return self._look(self.store.find(key, tokens), self._of_system(key, tag, tokens))

    def length(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> int:
        found = self.store.find(key, tokens, explains=False)
        return self._look(found, self._of_system(key, tag, tokens)).length

    def fetch(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> Fetch | None:
        if self.spill is None:
            return None
        self.spill.poll()  # what was written since is not lost with what is too old for memory
        found = self.store.find(key, tokens, explains=False)
        in_memory = self._look(found, self._of_system(key, tag, tokens)).length
        return self.spill.fetch(found) if found.reach > in_memory else None

    def computed(self, tokens: int, seconds: float) -> None:
        self._worth.computed(tokens, seconds)

    def fetched(self, fetch: Fetch) -> int:
        assert self.spill is not None
        assert isinstance(fetch, PrefixFetch)
        return self.spill.take(fetch)

    def adopt(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> Look:
        found = self.store.find(key, prompt.tokens)
        system = self._of_system(key, tag, prompt.tokens)
        look = self._look(found, system)
        pieces = [(cast(Segment, piece), count) for piece, count in found.pieces]
        if found.length:
            self.store.used(found)
            if self.spill is not None:
                self.spill.used(found)
        if system is not None and look.length > found.length:
            pieces = [(system, look.length)]
        if look.length:
            self._lay(prompt, pieces, look.length)
        return look

    def count(self, tokens: int, look: Look) -> None:
        self._counters.looked_up(tokens, look.length)

    def stop(self, tag: CacheTag, prompt: Reading) -> int:
        """Columns can be cut out anywhere."""
        return 0

    def keep_prompt(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> None:
        if prompt.kv is None or not prompt.computed:
            return
        caches, index = prompt.kv.caches, prompt.index
        if not are_whole(caches):
            return  # a cap has cost it its first columns
        self._insert(
            key,
            prompt.tokens[: prompt.computed],
            lambda start, stop: Segment(row_parts(caches, index, start, stop), stop - start),
        )
        self._keep_system(key, tag, prompt)

    def keep_row(self, key: CacheKey, tokens: Sequence[int], kv: KVBatch, place: int) -> None:
        assert kv.keeps_columns, "a model whose rows are kept by columns"
        columns = cast(KVColumns, kv)
        if tokens and not columns.has_dropped(place):
            self._insert(
                key,
                tokens,
                lambda start, stop: Segment(columns.extract(place, start, stop), stop - start),
            )

    def begin_turn(self) -> None:
        if self.spill is not None:
            self.spill.poll()
        self._grow_older()

    def end_turn(self, *, is_idle: bool) -> None:
        if is_idle:
            self._grow_older()
        older, self._older = self._older, _Turn()
        unwritten = [*self._left_unwritten(older.unwritten), *older.unwritten]
        held = [node.held for node in older.nodes] + [one.segment for one in unwritten]
        try:
            mx.eval([cast(Segment, one).layers for one in held if one is not None])
        except EVALUATION_ERRORS as why:
            log.warning("KV that was to be kept is lost: %s", why)
            self._forget(older)
            return
        if self.spill is not None:
            for one in unwritten:
                self.spill.write(one.node, one.run, one.segment.layers)

    def distrust(self) -> None:
        self._grow_older()
        self._forget(self._older)
        self._older = _Turn()

    def _grow_older(self) -> None:
        self._older.nodes += self.store.take_fresh()
        self._older.unwritten += self._unwritten
        self._unwritten = []

    def _left_unwritten(self, unwritten: Sequence[_Unwritten]) -> list[_Unwritten]:
        """What stands before these and could not be written when it was kept."""
        if self.spill is None or not unwritten:
            return []
        soon = (*unwritten, *self._unwritten)
        coming = {step for one in soon for step in nodes_of(one.run, one.node)}
        left: dict[Node, None] = {}
        for one in unwritten:
            left |= dict.fromkeys(self.spill.unwritten_above(one.node, one.run.start))
        return [_Unwritten(n, n.run(), held_by(n)) for n in left if n not in coming]

    def _forget(self, turn: _Turn) -> None:
        for node in turn.nodes:
            if node.held is not None:
                self.store.lost(node)

    def newest(self, session: str) -> tuple[CacheKey, tuple[int, ...], Layers] | None:
        """What a session kept last, in one piece; None: nothing."""
        kept = self.store.newest(session)
        if kept is None:
            return None
        key, tokens, pieces = kept
        parts = [(cast(Segment, piece), count) for piece, count in pieces]
        return key, tokens, joined(parts, room=len(tokens))

    def put(self, key: CacheKey, tokens: Sequence[int], segment: Segment, session: str) -> bool:
        """What was read from a file, as the newest of a session. False: there is no room for it."""
        own = replace(key, session=session)
        self._insert(own, tokens, segment.cut)
        found = self.store.find(own, (*tokens, NO_TOKEN), explains=False)
        return found.length > 0 or len(tokens) < self._least

    def fit(self, limit_bytes: int) -> None:
        self.store.fit(limit_bytes)

    def reset(self) -> tuple[int, int]:
        freed = self.store.reset()
        self._older, self._unwritten = _Turn(), []
        if self.spill is not None:
            self.spill.reset()
        return freed

    def numbers(self) -> Numbers:
        return Numbers(
            store=StoreNumbers(**self.store.stats()),
            disk=None if self.spill is None else self.spill.stats(),
        )

    def check(self) -> None:
        self.store.check()

    def close(self) -> None:
        self.end_turn(is_idle=True)  # what was kept in the last turn is written as well
        if self.spill is not None:
            self.spill.close()
        if self._system is not None:
            self._system.close()

    def _insert(
        self, key: CacheKey, tokens: Sequence[int], cut: Callable[[int, int], Segment]
    ) -> None:
        def copy(start: int, stop: int) -> Segment:
            segment = cut(start, stop)
            # At once: a later write into the row would have to copy what this one still reads.
            mx.async_eval(segment.layers)
            return segment

        kept = self.store.insert(key, tokens, copy)
        for node in kept if self.spill is not None else ():
            run = Run(key=key, prefix=node.prefix, tokens=node.tokens)
            self._unwritten.append(_Unwritten(node, run, held_by(node)))

    def _lay(self, prompt: Reading, pieces: Sequence[tuple[Segment, int]], length: int) -> None:
        room = length if self._plan.cap else -(-len(prompt.tokens) // STEP) * STEP
        layers = joined(pieces, room=room)
        prompt.kv = Prefilled(caches_from(layers, length, self._plan), (length,))
        prompt.index, prompt.computed = 0, length

    def _look(self, found: Found, system: Segment | None) -> Look:
        length, reason, is_system = found.length, found.reason, False
        most = len(found.tokens) - 1
        if system is not None and min(system.tokens, most) > max(length, found.reach):
            length, reason, is_system = min(system.tokens, most), None, True
        return Look(
            length=length,
            source=Source.MEMORY,
            reason=reason,
            diverged=found.diverged,
            is_older=found.is_older and not is_system,
            is_system=is_system,
            entry_length=found.entry_length,
        )

    def _of_system(self, key: CacheKey, tag: CacheTag, tokens: Sequence[int]) -> Segment | None:
        if self._system is None or not tag.system or key.lora != self._system_lora:
            return None
        return self._system.find(tokens[: tag.system])

    def _keep_system(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> None:
        tokens = prompt.tokens[: tag.system]
        if self._system is None or key.lora != self._system_lora:
            return
        if not 0 < tag.system <= prompt.computed:
            return
        if self._system.wanted(tokens):
            assert prompt.kv is not None
            segment = Segment(row_parts(prompt.kv.caches, prompt.index, 0, tag.system), tag.system)
            mx.eval(segment.layers)
            self._system.keep(tokens, segment)


def held_by(node: Node) -> Segment:
    assert node.held is not None, "it was kept just now"
    return cast(Segment, node.held)
