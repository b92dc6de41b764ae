"""The prefix store under random use, against a model made of sets: the same is found, nothing
leaks, and no bound is exceeded."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mlxcel.engine.cache.adopt import StoreRules
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.node import Node, Piece
from mlxcel.engine.cache.store import PrefixStore
from tests.engine.cache.prefix_model import Model, Tokens
from tests.engine.cache.told_payload import TOKEN_BYTES, Clock, Told, columns_of, key, told

KEYS = [key(), key("anna"), key("anna", tools=b"\x01" * 32)]
keys = st.sampled_from(KEYS)
fresh_ids = st.lists(st.integers(0, 2), max_size=14).map(tuple)
rules_of_stores = st.fixed_dictionaries(
    {
        "capacity_bytes": st.none() | st.integers(0, 40).map(lambda n: n * TOKEN_BYTES),
        "max_entries": st.sampled_from([1, 2, 3, 1024]),
        "ttl_s": st.sampled_from([0.0, 10.0]),
        "min_prefix": st.integers(1, 5),
        "is_apc": st.booleans(),
        "block": st.sampled_from([2, 3]),
        "floor": st.sampled_from([1, 2, 4]),
    }
)


class PrefixMachine(RuleBasedStateMachine):
    """Files are a dictionary: what stands in them, and from where."""

    @initialize(rules=rules_of_stores)
    def start(self, rules: dict[str, Any]) -> None:
        self.rules = StoreRules(**rules)
        self.clock = Clock()
        self.counters = Counters()
        self.store = PrefixStore(self.rules, self.counters, clock=self.clock)
        self.model = Model(self.rules)
        self.model.now = self.clock.now
        self.files: dict[str, tuple[Any, Tokens, int]] = {}
        self.waiting: list[tuple[Node, Any, Tokens, int]] = []
        self.seen: list[Tokens] = [(0, 1, 2)]

    def some_ids(self, data: st.DataObject) -> Tokens:
        """Mostly like something that was there before."""
        known = data.draw(st.sampled_from(self.seen))
        ids = known[: data.draw(st.integers(0, len(known)))] + data.draw(fresh_ids)
        self.seen.append(ids)
        return ids[:20]

    @rule(key=keys, data=st.data())
    def insert(self, key: Any, data: st.DataObject) -> None:
        ids = self.some_ids(data)
        cuts: list[tuple[int, int]] = []

        def cut(start: int, stop: int) -> Told:
            cuts.append((start, stop))
            return told(ids, start, stop)

        nodes = self.store.insert(key, ids, cut)
        expected = self.model.insert(key, ids)
        assert cuts == ([] if expected is None else [expected])
        for node in nodes:
            assert (node.piece, node.prefix + node.tokens) == (None, ids)
            self.waiting.append((node, key, ids, node.start))

    @rule(key=keys, data=st.data(), is_used=st.booleans())
    def look(self, key: Any, data: st.DataObject, is_used: bool) -> None:
        ids = self.some_ids(data)
        found = self.store.find(key, ids)
        self.model.expire()
        memory, there = self.model.in_memory(), self.model.available()
        assert found.length == self.model.length(key, ids, memory)
        assert found.reach == self.model.length(key, ids, there)
        assert columns_of(found) == told(ids, 0, found.length).columns
        if not found.reach:
            assert found.reason == self.model.reason(key, ids, there)
        if found.diverged is not None and not found.diverged.differs:
            assert found.diverged.at == self.model.agreed(key, ids, there)
        if is_used:
            self.store.used(found)
            if found.length:
                self.model.used(key, ids[: found.length])

    @rule(key=keys, data=st.data(), runs=st.integers(0, 9))
    def read_back(self, key: Any, data: st.DataObject, runs: int) -> None:
        found = self.store.find(key, self.some_ids(data))
        self.model.expire()
        at = self.model.agreed(key, found.tokens, self.model.in_memory())
        for node in found.missing[:runs]:
            assert node.held is None
            assert node.piece is not None
            assert node.start <= at < node.stop
            at = node.stop
            _, ids, start = self.files[node.piece.file]
            file = told(ids, start, len(ids))
            payload = file.cut(node.piece.start, node.piece.stop)
            is_wanted = node.is_attached and (node.parent is node.root.top or node.parent.held)
            self.store.fill(node, payload)
            if is_wanted:
                self.model.keep(key, node.prefix + node.tokens, is_asked=False)
        assert runs < len(found.missing) or not found.missing or at >= found.reach

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), is_by_tokens=st.booleans())
    def written(self, data: st.DataObject, is_by_tokens: bool) -> None:
        at = data.draw(st.integers(0, len(self.waiting) - 1))
        node, key, ids, start = self.waiting.pop(at)
        file = f"f{len(self.files)}"
        self.files[file] = (key, ids, start)
        piece = Piece(file, 0, len(ids) - start)
        if is_by_tokens:
            assert self.store.place(key, ids, start, piece) == self.model.place(
                key, ids, start, file
            )
        elif node.is_attached:
            self.store.stored(node, piece)
            self.model.stored(key, ids, start, file)
        else:
            self.store.stored(node, piece)
            if node.root.is_current:
                self.model.place(key, ids, start, file)

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def file_of_another_run(self, data: st.DataObject) -> None:
        """As after a restart, or from another server on the same folder."""
        key, ids = data.draw(keys), self.some_ids(data)
        start = data.draw(st.integers(0, len(ids)))
        file = f"f{len(self.files)}"
        self.files[file] = (key, ids, start)
        piece = Piece(file, 0, len(ids) - start)
        assert self.store.place(key, ids, start, piece) == self.model.place(key, ids, start, file)

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def removed(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(sorted(self.files)))
        self.store.gone(file)
        self.model.gone(file)

    @rule(key=keys, data=st.data())
    def unsound(self, key: Any, data: st.DataObject) -> None:
        found = self.store.find(key, self.some_ids(data))
        self.model.expire()
        nodes = [*found.missing] if found.node is None else [found.node, *found.missing]
        if not nodes:
            return
        node = data.draw(st.sampled_from(nodes))
        is_held, piece = node.held is not None, node.piece
        self.store.lost(node)
        if is_held:
            self.model.lost(key, node.prefix + node.tokens)
        elif piece is not None:
            self.model.gone(piece.file)

    @rule(seconds=st.sampled_from([1.0, 5.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.model.now = self.clock.now

    @rule(tokens=st.integers(0, 30))
    def make_room(self, tokens: int) -> None:
        self.store.fit(tokens * TOKEN_BYTES)
        self.model.fit(tokens * TOKEN_BYTES)

    @rule(is_meant=st.integers(0, 5))
    def reset(self, is_meant: int) -> None:
        if is_meant:
            return
        expected = self.model.bytes, len(self.model.held)
        assert self.store.reset() == expected
        self.model.reset()

    @invariant()
    def nothing_leaks(self) -> None:
        if not hasattr(self, "store"):
            return
        self.store.check()
        assert self.store.bytes == self.model.bytes
        assert self.store.entries == len(self.model.held)
        assert self.counters.rejections_oversized == self.model.oversized


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        PrefixMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_store_is_its_model() -> None:
    run(examples=25, steps=25)


@pytest.mark.slow
def test_store_is_its_model_for_long() -> None:
    run(examples=150, steps=50)
