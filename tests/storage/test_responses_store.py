"""What is kept is found again, by its owner alone; in memory and in a file alike."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlxcel.storage.responses import BrokenChain, MemoryStore, ResponseStore
from mlxcel.storage.shelf import Bounds
from mlxcel.storage.sqlite import SqliteStore
from tests.storage.keeping import WIDE, Hand, response

pytestmark = pytest.mark.asyncio
Make = Callable[..., ResponseStore]


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    made: list[ResponseStore] = []

    def one(bounds: Bounds = WIDE, clock: Hand | None = None) -> ResponseStore:
        clock = Hand() if clock is None else clock
        in_memory = request.param == "memory"
        file = tmp_path / "kept.sqlite"
        store: ResponseStore = (
            MemoryStore(bounds, clock=clock)
            if in_memory
            else SqliteStore(file, bounds, clock=clock)
        )
        made.append(store)
        return store

    yield one
    for store in made:
        store.close()


def bounds(*, entries: int = 100, size: int = 1_000_000, ttl_s: float = 0) -> Bounds:
    return Bounds(max_entries=entries, max_bytes=size, ttl_s=ttl_s)


async def names(store: ResponseStore, *ids: str) -> list[str]:
    return [id for id in ids if await store.get("o", id) is not None]


async def test_what_is_put_is_found_as_it_was(make: Make) -> None:
    store, kept = make(), response("r1", "r0")
    store.put(kept)
    assert await store.get("o", "r1") == kept


async def test_a_later_one_takes_the_place(make: Make) -> None:
    store = make()
    store.put(response("r1"))
    store.put(response("r1", "r0"))
    found = await store.get("o", "r1")
    assert found is not None
    assert found.previous_id == "r0"


async def test_another_owner_finds_nothing(make: Make) -> None:
    store = make()
    store.put(response("r1"))
    assert await store.get("p", "r1") is None
    assert not await store.delete("p", "r1")
    assert await store.find_items("p", ["r1-in"]) == {}
    with pytest.raises(BrokenChain):
        await store.chain("p", "r1")
    assert await store.delete("o", "r1")


async def test_it_can_be_deleted_once(make: Make) -> None:
    store = make()
    store.put(response("r1"))
    assert [await store.delete("o", "r1") for _ in range(2)] == [True, False]
    assert await store.get("o", "r1") is None
    assert await store.find_items("o", ["r1-in"]) == {}


async def test_a_chain_is_told_from_its_beginning(make: Make) -> None:
    store = make()
    for id, previous in (("r1", None), ("r2", "r1"), ("r3", "r2"), ("x", None)):
        store.put(response(id, previous))
    chain = await store.chain("o", "r3")
    items = [item["id"] for one in chain for item in one.items]
    assert items == ["r1-in", "r1-out", "r2-in", "r2-out", "r3-in", "r3-out"]


async def test_a_chain_with_a_hole_is_none(make: Make) -> None:
    store = make()
    store.put(response("r1"))
    store.put(response("r2", "r1"))
    await store.delete("o", "r1")
    with pytest.raises(BrokenChain, match="'r1', before 'r2', is not kept"):
        await store.chain("o", "r2")
    with pytest.raises(BrokenChain, match="the response 'r9' is not kept"):
        await store.chain("o", "r9")


async def test_items_are_found_by_their_ids(make: Make) -> None:
    store = make()
    store.put(response("r1"))
    store.put(response("r2"))
    found = await store.find_items("o", ["r1-in", "r2-out", "r9-in"])
    assert {name: item["role"] for name, item in found.items()} == {
        "r1-in": "user",
        "r2-out": "assistant",
    }


async def test_the_oldest_goes_when_there_are_too_many(make: Make) -> None:
    store = make(bounds(entries=2))
    for id in ("r1", "r2", "r3"):
        store.put(response(id))
    assert await names(store, "r1", "r2", "r3") == ["r2", "r3"]
    assert await store.find_items("o", ["r1-in"]) == {}


async def test_the_oldest_goes_when_they_are_too_large(make: Make) -> None:
    store = make(bounds(size=500))
    for id in ("r1", "r2", "r3"):
        store.put(response(id))
    kept = await names(store, "r1", "r2", "r3")
    assert "r3" in kept
    assert "r1" not in kept


async def test_going_on_from_a_response_is_a_use_of_its_whole_chain(make: Make) -> None:
    clock = Hand()
    store = make(bounds(entries=3), clock)
    for id, previous in (("r1", None), ("r2", "r1"), ("x", None)):
        clock.now_s += 1
        store.put(response(id, previous))
    clock.now_s += 1
    await store.chain("o", "r2")
    clock.now_s += 1
    store.put(response("r3", "r2"))
    assert await names(store, "r1", "r2", "r3", "x") == ["r1", "r2", "r3"]


async def test_what_is_too_old_is_not_there(make: Make) -> None:
    clock = Hand()
    store = make(bounds(ttl_s=10), clock)
    store.put(response("r1"))
    assert await names(store, "r1") == ["r1"]
    clock.now_s += 10.5
    assert await names(store, "r1") == []
    assert await store.find_items("o", ["r1-in"]) == {}
    assert not await store.delete("o", "r1")
    with pytest.raises(BrokenChain):
        await store.chain("o", "r1")


async def test_a_chain_in_use_does_not_expire(make: Make) -> None:
    clock = Hand()
    store = make(bounds(ttl_s=10), clock)
    store.put(response("r1"))
    for _ in range(3):
        clock.now_s += 9
        assert len(await store.chain("o", "r1")) == 1


@pytest.mark.parametrize(
    ("changed", "is_on", "is_kept"),
    [({"entries": 0}, False, False), ({"size": 0}, True, False), ({"ttl_s": 0}, True, True)],
    ids=lambda value: str(value),
)
async def test_a_limit_of_zero(
    make: Make, changed: dict[str, int], is_on: bool, is_kept: bool
) -> None:
    store = make(bounds(**changed))
    store.put(response("r1"))
    assert store.is_on is is_on
    assert (await store.get("o", "r1") is not None) is is_kept
