"""A payload that says what it is: each column is the place and the token that it was made for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from mlxcel.core.cache import ANONYMOUS, NO_DIGEST
from mlxcel.engine.cache.adopt import SessionRules, StoreRules
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.node import Node
from mlxcel.engine.cache.store import Found, PrefixStore

TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    columns: tuple[tuple[int, int], ...]

    @property
    def tokens(self) -> int:
        return len(self.columns)

    @property
    def nbytes(self) -> int:
        return TOKEN_BYTES * len(self.columns)

    def cut(self, start: int, stop: int) -> Self:
        assert 0 <= start < stop <= len(self.columns)
        return replace(self, columns=self.columns[start:stop])


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Shelf:
    """A store with what a test needs around it."""

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        max_entries: int = 1024,
        ttl_s: float = 3600.0,
        min_prefix: int = 32,
        is_apc: bool = True,
        block: int = 16,
        floor: int = 32,
        sessions: SessionRules | None = None,
    ) -> None:
        self.clock = Clock()
        self.counters = Counters()
        rules = StoreRules(
            capacity_bytes=capacity_bytes,
            max_entries=max_entries,
            ttl_s=ttl_s,
            min_prefix=min_prefix,
            is_apc=is_apc,
            block=block,
            floor=floor,
            sessions=sessions,
        )
        self.store = PrefixStore(rules, self.counters, clock=self.clock)
        self.cuts: list[tuple[int, int]] = []

    def insert(self, tokens: Sequence[int], key: CacheKey | None = None) -> list[Node]:
        ids = tuple(tokens)

        def cut(start: int, stop: int) -> Told:
            self.cuts.append((start, stop))
            return told(ids, start, stop)

        nodes = self.store.insert(KEY if key is None else key, ids, cut)
        self.store.check()
        return nodes

    def find(self, tokens: Sequence[int], key: CacheKey | None = None) -> Found:
        found = self.store.find(KEY if key is None else key, tokens)
        self.store.check()
        columns = columns_of(found)
        assert columns == told(found.tokens, 0, found.length).columns
        return found

    def adopt(self, tokens: Sequence[int], key: CacheKey | None = None) -> int:
        found = self.find(tokens, key)
        self.store.used(found)
        return found.length


def columns_of(found: Found) -> tuple[tuple[int, int], ...]:
    columns: list[tuple[int, int]] = []
    for payload, count in found.pieces:
        assert isinstance(payload, Told)
        columns += payload.columns[:count]
    return tuple(columns)


def told(ids: Sequence[int], start: int, stop: int) -> Told:
    return Told(tuple(enumerate(ids))[start:stop])


def key(session: str = ANONYMOUS, **changes: object) -> CacheKey:
    plain = CacheKey(
        session=session,
        lora=(),
        template=NO_DIGEST,
        tool_choice="__absent__",
        tools=NO_DIGEST,
        media=NO_DIGEST,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


KEY = key()
