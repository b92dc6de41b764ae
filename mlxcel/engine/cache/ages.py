"""Which entries are in memory, which of them was used when, and which have to go (engine contract,
cache 6: expired first, then the least recently used, until bytes and entries fit).
"""

from collections import OrderedDict
from collections.abc import Callable

from mlxcel.core.cache import ANONYMOUS
from mlxcel.engine.cache.adopt import SessionRules, StoreRules
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.node import Entry, Node, Session
from mlxcel.engine.cache.tree import Tree

Order = OrderedDict[Entry, None]


class Ages:
    """Owned by the tick. Its callers put entries into memory by `keep`; nobody but this takes
    them out."""

    def __init__(
        self, rules: StoreRules, counters: Counters, tree: Tree, clock: Callable[[], float]
    ) -> None:
        self.held: Order = OrderedDict()
        """Least recently used first."""
        self._rules = rules
        self._counters = counters
        self._tree = tree
        self._clock = clock
        self._rank = 0

    def keep(self, node: Node, *, is_asked: bool = True) -> None:
        """An entry ends at this node, all of it in memory; it stands for those that are its
        beginning, where beginnings can be adopted."""
        entry = self._tree.enter(node, is_held=True, is_asked=is_asked)
        session = self._tree.session(node.key.session)
        self.held[entry] = session.held[entry] = None
        if is_asked:
            session.newest = entry
        for above in tuple(node.upward())[1:]:
            if above.entry is not None and (self._rules.is_apc or not above.entry.is_asked):
                self._forget(above.entry)
                self._tree.strike(above.entry)
        self.touch(entry)
        self._bound(session)

    def touch(self, entry: Entry) -> None:
        """It is used."""
        self._rank += 1
        session = self._tree.session(entry.node.key.session)
        entry.used_at = session.used_at = self._clock()
        self._tree.touch(entry, self._rank)
        self.held.move_to_end(entry)
        session.held.move_to_end(entry)

    def expire(self) -> None:
        """Those that nobody used for too long."""
        now = self._clock()
        for entry in self._unused(now):
            ttl_s, used_at = self._age_rule(entry)
            if 0 < ttl_s < now - used_at:
                self._counters.evictions_ttl += 1
                self.release(entry)

    def fit(self, limit_bytes: int) -> None:
        while self._tree.bytes > limit_bytes and self.held:
            self._evict_oldest(self.held)

    def release(self, entry: Entry) -> None:
        """Out of memory. On disk it stays as far as it is there."""
        self._forget(entry)
        self._tree.release(entry)

    def rules_of(self, session: str) -> SessionRules | None:
        return None if session == ANONYMOUS else self._rules.sessions

    def check(self) -> None:
        """Our own invariants, for tests."""
        entries = [node.entry for node in self._tree.nodes() if node.entry is not None]
        assert {*self.held} == {entry for entry in entries if entry.is_held}
        ranks = [entry.rank for entry in self.held]
        assert ranks == sorted(set(ranks)) and all(ranks)
        assert not any(entry.rank for entry in entries if not entry.is_held)
        by_session: dict[str, list[Entry]] = {}
        for entry in self.held:
            by_session.setdefault(entry.node.key.session, []).append(entry)
        for session in self._tree.sessions.values():
            assert list(session.held) == by_session.get(session.name, [])
        self._check_bounds(by_session)

    def _check_bounds(self, by_session: dict[str, list[Entry]]) -> None:
        rules = self._rules
        assert len(self.held) <= rules.max_entries
        assert rules.capacity_bytes is None or self._tree.bytes <= rules.capacity_bytes
        if rules.sessions is None:
            return
        named = [entries for name, entries in by_session.items() if name != ANONYMOUS]
        assert len(named) <= rules.sessions.most
        assert all(len(entries) <= rules.sessions.entries for entries in named)

    def _unused(self, now: float) -> list[Entry]:
        """Those that may be too old: nobody else has to be looked at."""
        ages = [self._rules.ttl_s]
        if self._rules.sessions is not None:
            ages.append(self._rules.sessions.ttl_s)
        shortest = min((age for age in ages if age > 0), default=None)
        found: list[Entry] = []
        for entry in self.held:
            if shortest is None or now - entry.used_at <= shortest:
                break
            found.append(entry)
        return found

    def _age_rule(self, entry: Entry) -> tuple[float, float]:
        """How long it may be unused, and since when it is."""
        session = entry.node.key.session
        rules = self.rules_of(session)
        if rules is None:
            return self._rules.ttl_s, entry.used_at
        return rules.ttl_s, self._tree.session(session).used_at

    def _bound(self, session: Session) -> None:
        rules = self.rules_of(session.name)
        if rules is not None:
            while len(session.held) > rules.entries:
                self._evict_oldest(session.held)
            self._bound_sessions(rules.most)
        while len(self.held) > self._rules.max_entries:
            self._evict_oldest(self.held)
        if self._rules.capacity_bytes is not None:
            self.fit(self._rules.capacity_bytes)

    def _bound_sessions(self, most: int) -> None:
        named = [s for s in self._tree.sessions.values() if s.held and s.name != ANONYMOUS]
        named.sort(key=lambda session: next(reversed(session.held)).rank)
        for session in named[: max(0, len(named) - most)]:
            while session.held:
                self._evict_oldest(session.held)

    def _evict_oldest(self, held: Order) -> None:
        self._counters.evictions_lru += 1
        self.release(next(iter(held)))

    def _forget(self, entry: Entry) -> None:
        if entry.is_held:
            del self.held[entry]
            del self._tree.session(entry.node.key.session).held[entry]
