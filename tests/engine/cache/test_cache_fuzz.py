"""Hundreds of random operations on the cache by columns, memory and disk, against a dictionary.

The KV of a token is made from all tokens before it, so that a column of the wrong branch shows.
"""

import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache

from mlxcel.core.cache import CacheTag
from mlxcel.engine.cache import conversation_files
from mlxcel.engine.cache.columns import ColumnKeeping
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.disk.tier import DiskRules, DiskTier, Identity
from mlxcel.engine.cache.key import CacheKey, key_of
from mlxcel.engine.cache.segment import Segment
from mlxcel.engine.cache.store import StoreRules
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.kv.prefilled import Prefilled

LAYERS, HEADS, DIM = 2, 1, 4
TOKEN_BYTES = LAYERS * 2 * HEADS * DIM * 4
FLOOR = 32
IDENTITY = Identity(model="m" * 64, kv_mode="fp16", adapters="")
Tokens = tuple[int, ...]


@dataclass
class Reading:
    tokens: Tokens
    computed: int = 0
    kv: Prefilled | None = None
    index: int = 0
    stop: int = 0
    lora: tuple[float, ...] = ()


def columns(tokens: Sequence[int]) -> np.ndarray:
    """`[tokens]`: what stands for the KV of each."""
    made, mixed = [], 7
    for token in tokens:
        mixed = (mixed * 31 + token) % 9973
        made.append(mixed)
    return np.array(made, dtype=np.float32)


def caches_of(tokens: Sequence[int]) -> list[KVCache]:
    values = columns(tokens)
    made = []
    for layer in range(LAYERS):
        cache = KVCache()
        block = np.broadcast_to(values[None, None, :, None], (1, HEADS, len(tokens), DIM))
        cache.keys, cache.values = mx.array(block + layer), mx.array(-block - layer)
        cache.offset = len(tokens)
        made.append(cache)
    return made


def check_columns(caches: list[KVCache], tokens: Sequence[int]) -> None:
    values = columns(tokens)
    for layer, cache in enumerate(caches):
        assert cache.offset == len(tokens)
        keys = np.array(cache.keys)[0, 0, : len(tokens), 0]
        held = np.array(cache.values)[0, 0, : len(tokens), -1]
        np.testing.assert_array_equal(keys, values + layer)
        np.testing.assert_array_equal(held, -values - layer)


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


@dataclass
class Model:
    """What was kept, by session; `sure` while nothing can have been lost of it."""

    kept: dict[str, list[Tokens]] = field(default_factory=dict)
    sure: bool = True

    def best(self, session: str, tokens: Tokens) -> int:
        longest = max((shared(tokens, one) for one in self.kept.get(session, [])), default=0)
        return min(longest, len(tokens) - 1) // FLOOR * FLOOR


class World:
    """The cache, its folder and the dictionary."""

    def __init__(self, folder: Path, seed: int, capacity: int, disk: int | None) -> None:
        self.folder, self.capacity, self.disk = folder, capacity, disk
        self.random = random.Random(seed)
        self.model = Model()
        self.saved: dict[Path, Tokens] = {}
        self.keeping = self.open()

    def open(self) -> ColumnKeeping:
        rules = StoreRules(
            capacity_bytes=self.capacity,
            max_entries=64,
            ttl_s=0,
            min_prefix=FLOOR,
            is_apc=True,
            block=16,
            floor=FLOOR,
        )
        keeping = ColumnKeeping(rules, Counters(), plan=KVPlan())
        if self.disk is not None:
            disk = DiskRules(
                folder=self.folder, capacity_bytes=self.disk, min_free_bytes=0, ttl_s=0
            )
            keeping.write_to(DiskTier(disk, IDENTITY), lambda step, fraction: None)
        return keeping

    def key(self) -> CacheKey:
        return key_of(CacheTag(session=self.random.choice(["a", "b", "c"])), ())

    def tokens(self, session: str) -> Tokens:
        """Often the beginning of something that is known, and something new behind it."""
        known = self.model.kept.get(session, [])
        head: Tokens = ()
        if known and self.random.random() < 0.8:
            base = self.random.choice(known)
            head = base[: self.random.randint(0, len(base))]
        tail = [self.random.randint(0, 3) for _ in range(self.random.randint(1, 120))]
        return (*head[:500], *tail)

    def turn(self, *, is_idle: bool = False) -> None:
        self.keeping.begin_turn()
        self.keeping.end_turn(is_idle=is_idle)
        self.keeping.check()
        assert self.keeping.nbytes <= self.capacity
        if self.disk is not None:
            assert self.keeping.numbers().disk["bytes"] <= self.disk  # type: ignore[index]

    def flush(self) -> None:
        self.turn(is_idle=True)
        if self.disk is None:
            return
        until = time.monotonic() + 20
        while self.keeping.numbers().disk["queue_bytes"]:  # type: ignore[index]
            assert time.monotonic() < until, "the disk does not follow"
            time.sleep(0.002)
        self.turn(is_idle=True)

    # Operations.

    def insert(self) -> None:
        key = self.key()
        tokens = self.tokens(key.session)
        reading = Reading((*tokens, 9), len(tokens), Prefilled(caches_of(tokens), (len(tokens),)))
        before = self.keeping.numbers().store.entries
        self.keeping.keep_prompt(key, CacheTag(session=key.session), reading)
        assert before <= 64
        self.model.kept.setdefault(key.session, []).append(tokens)
        if self.disk is None and self.keeping._counters.evictions_lru:
            self.model.sure = False

    def adopt(self) -> None:
        key = self.key()
        tag = CacheTag(session=key.session)
        prompt = Reading(self.tokens(key.session))
        best = self.model.best(key.session, prompt.tokens)
        fetch = self.keeping.fetch(key, tag, prompt.tokens)
        if fetch is not None:
            fetch.read.result()
            self.keeping.fetched(fetch)
        look = self.keeping.adopt(key, tag, prompt)
        assert look.length <= best
        if self.model.sure and self.capacity > len(prompt.tokens) * TOKEN_BYTES * 4:
            assert look.length == best
        if look.length:
            assert prompt.kv is not None
            check_columns(prompt.kv.caches, prompt.tokens[: look.length])
            self.extend(key, tag, prompt)

    def extend(self, key: CacheKey, tag: CacheTag, prompt: Reading) -> None:
        """Read the rest, write over what was adopted, and keep it: nobody else may notice."""
        assert prompt.kv is not None
        length = prompt.computed
        whole = caches_of(prompt.tokens[:-1])
        if len(prompt.tokens) - 1 > length:
            for cache, full in zip(prompt.kv.caches, whole, strict=True):
                cache.update_and_fetch(full.keys[:, :, length:], full.values[:, :, length:])
        prompt.computed = len(prompt.tokens) - 1
        self.keeping.keep_prompt(key, tag, prompt)
        self.model.kept.setdefault(key.session, []).append(prompt.tokens[:-1])
        for cache in prompt.kv.caches:
            cache.keys[...] = 123.0
            cache.values[...] = 321.0

    def evict(self) -> None:
        self.flush()
        limit = self.random.choice([0, self.keeping.nbytes // 2, self.keeping.nbytes])
        self.keeping.fit(limit)
        assert self.keeping.nbytes <= limit
        self.model.sure = self.model.sure and self.disk is not None

    def reset(self) -> None:
        self.keeping.reset()
        assert self.keeping.nbytes == self.keeping.entries == 0
        self.model = Model()

    def save(self) -> None:
        key = self.key()
        kept = self.keeping.newest(key.session)
        if kept is None:
            return
        found, tokens, layers = kept
        path = self.folder / f"saved-{self.random.randint(0, 3)}.safetensors"
        conversation_files.write(path, tokens, found, layers, IDENTITY)
        self.saved[path] = tokens

    def restore(self) -> None:
        if not self.saved:
            return
        path, tokens = self.random.choice(list(self.saved.items()))
        read, key, segment = conversation_files.read(path, IDENTITY)
        assert read == tokens
        self.keeping.put(key, read, segment, key.session)
        self.model.kept.setdefault(key.session, []).append(read)

    def restart(self) -> None:
        """In good order: what was kept is written."""
        if self.disk is None:
            return
        self.flush()
        self.keeping.close()
        self.keeping = self.open()

    def crash(self) -> None:
        """In mid-write: what waits is never written, and a half file lies there."""
        if self.disk is None:
            return
        spill = self.keeping.spill
        assert spill is not None
        spill._tier._writer._is_abandoned.set()
        spill._tier.close(5)
        files = sorted(self.folder.glob("*.kv.safetensors"))
        if files and self.random.random() < 0.5:
            victim = self.random.choice(files)
            victim.write_bytes(victim.read_bytes()[: self.random.randint(0, 400)])
        (self.folder / ".half.kv.tmp").write_bytes(b"x" * 100)
        self.keeping = self.open()
        assert not (self.folder / ".half.kv.tmp").exists()
        self.model.sure = False


OPERATIONS = {
    World.insert: 40,
    World.adopt: 45,
    World.evict: 4,
    World.save: 3,
    World.restore: 3,
    World.restart: 2,
    World.reset: 1,
    World.crash: 1,
}


LITTLE = 200 * TOKEN_BYTES * 8
SIZES = [
    pytest.param(1, 1 << 30, None, 2000, id="memory"),
    pytest.param(2, LITTLE, None, 2000, id="little-memory"),
    pytest.param(3, 1 << 30, 1 << 30, 800, id="disk"),
    pytest.param(4, LITTLE, 1 << 30, 800, id="little-memory-and-disk"),
    pytest.param(5, LITTLE, 400_000, 800, id="little-of-both"),
]
sizes = pytest.mark.parametrize(("seed", "capacity", "disk", "operations"), SIZES)


@pytest.mark.slow
@sizes
def test_operations_agree_with_a_dictionary(
    tmp_path: Path, seed: int, capacity: int, disk: int | None, operations: int
) -> None:
    agree(World(tmp_path / "kv", seed, capacity, disk), operations)


@pytest.mark.long
@sizes
@pytest.mark.parametrize("more", [10, 20])
def test_thousands_of_operations_agree_with_a_dictionary(
    tmp_path: Path, seed: int, capacity: int, disk: int | None, operations: int, more: int
) -> None:
    agree(World(tmp_path / "kv", seed + more, capacity, disk), 3 * operations)


def agree(world: World, operations: int) -> None:
    world.folder.mkdir(exist_ok=True)
    is_full = world.disk is not None and world.disk < 1 << 30
    weights = list(OPERATIONS.values())
    for _ in range(operations):
        world.model.sure = world.model.sure and not is_full
        world.random.choices(list(OPERATIONS), weights)[0](world)
        world.turn(is_idle=world.random.random() < 0.2)
    world.flush()
    world.reset()
    world.flush()
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, Segment)]
    assert not kept, "KV that nobody can find is still held"
    world.keeping.close()
