"""The store of states against a list that is gone through from one end to the other."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.cache.snapshot_shop import BLOB, Shop, key_for


class Naive:
    """What the store should do, by going through all there is, the least recently used first."""

    def __init__(self, capacity: int, entries: int, ttl: float) -> None:
        self.capacity, self.most, self.ttl = capacity, entries, ttl
        self.kept: list[tuple[str, tuple[int, ...], str, int, float]] = []

    def expire(self, now: float) -> None:
        self.kept = [one for one in self.kept if now - one[4] <= self.ttl]

    def find(self, session: str, tokens: tuple[int, ...]) -> int:
        lengths = [0]
        for kept, stored, _, nbytes, _ in self.kept:
            if kept != session:
                continue
            shared = 0
            while shared < min(len(stored), len(tokens)) and stored[shared] == tokens[shared]:
                shared += 1
            can_be_cut = nbytes != BLOB
            usable = min(shared, len(tokens) - 1)
            if can_be_cut or (shared == len(stored) and shared < len(tokens)):
                lengths.append(usable)
        return max(lengths)

    def use(self, session: str, tokens: tuple[int, ...], now: float) -> None:
        at = next(i for i, one in enumerate(self.kept) if one[:2] == (session, tokens))
        self.kept.append((*self.kept.pop(at)[:4], now))

    def insert(
        self, session: str, tokens: tuple[int, ...], origin: str, nbytes: int, now: float
    ) -> None:
        if any(one[:2] == (session, tokens) for one in self.kept):
            self.use(session, tokens, now)
            return
        if nbytes > self.capacity:
            return
        self.kept = [
            one
            for one in self.kept
            if not (one[0] == session and one[2] == origin and tokens[: len(one[1])] == one[1])
        ]
        while self.kept and (len(self.kept) >= self.most or self.bytes + nbytes > self.capacity):
            del self.kept[0]
        self.kept.append((session, tokens, origin, nbytes, now))

    @property
    def bytes(self) -> int:
        return sum(one[3] for one in self.kept)


sequences = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)
sessions = st.sampled_from(["hers", "his"])
operations = st.one_of(
    st.tuples(st.just("insert"), sessions, sequences, st.sampled_from(["a", "b"]), st.booleans()),
    st.tuples(st.just("find"), sessions, sequences, st.booleans()),
    st.tuples(st.just("wait"), st.floats(0, 8)),
    st.tuples(st.just("fit"), st.integers(0, 2000)),
    st.tuples(st.just("reset")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(operations, max_size=40))
def test_store_does_what_a_list_does(steps: list[tuple[object, ...]]) -> None:
    shop, naive = Shop(capacity=1500, entries=6, ttl=10.0), Naive(1500, 6, 10.0)
    for step in steps:
        now = shop.clock.now
        match step:
            case ("insert", str(session), tuple(tokens), str(origin), bool(can_be_cut)):
                naive.expire(now)
                state = shop.put(tokens, origin, key_for(session), can_be_cut=can_be_cut)
                naive.insert(session, tokens, origin, state.nbytes, now)
            case ("find", str(session), tuple(tokens), bool(is_used)):
                naive.expire(now)
                found = shop.find(tokens, key_for(session))
                assert found.length == naive.find(session, tokens)
                assert found.state is None or found.state.position == found.length
                if is_used and found.entry is not None:
                    shop.store.used(found)
                    stored = tuple(memoryview(found.entry.data).cast("i"))
                    naive.use(session, stored, now)
            case ("wait", float(seconds)):
                shop.clock.now += seconds
            case ("fit", int(limit)):
                shop.store.fit(limit)
                while naive.kept and naive.bytes > limit:
                    del naive.kept[0]
            case _:
                freed = (naive.bytes, len(naive.kept))
                assert shop.store.reset() == freed
                naive.kept.clear()
        assert (shop.store.bytes, shop.store.entries) == (naive.bytes, len(naive.kept))
        shop.store.check()
