"""What of the states stays, what makes room, and how that is counted."""

import logging

import pytest

from mlxcel.core.cache import Reject
from mlxcel.engine.cache.snapshots import FoundState, Origin
from tests.engine.cache.snapshot_shop import BLOB, COLUMN, Shop, key_for, run

# Superseding and counting.


def test_longer_state_of_the_same_origin_takes_the_place() -> None:
    shop = Shop()
    shop.put(run(0, 10), Origin.BOUNDARY)
    shop.put(run(0, 14), Origin.COMPLETION)
    shop.put(run(0, 20), Origin.BOUNDARY)
    assert shop.store.entries == 2
    assert shop.counters.snapshot_supersedes == 1
    assert shop.length(run(0, 12)) == 0
    assert shop.length(run(0, 16)) == 14


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([*run(0, 9), 99, 98], id="it-parts"),
        pytest.param(run(0, 5), id="it-is-shorter"),
    ],
)
def test_state_that_does_not_go_on_from_it_takes_no_place(other: list[int]) -> None:
    shop = Shop()
    shop.put(run(0, 10), Origin.BOUNDARY)
    shop.put(other, Origin.BOUNDARY)
    assert shop.store.entries == 2
    assert shop.counters.snapshot_supersedes == 0


def test_states_of_another_key_are_not_superseded() -> None:
    shop = Shop()
    shop.put(run(0, 10), key=key_for("hers"))
    shop.put(run(0, 20), key=key_for("his"))
    assert shop.length(run(0, 30), key_for("hers")) == 10


def test_same_tokens_again_are_only_used_again() -> None:
    shop = Shop(entries=2)
    first = shop.put(run(0, 5), "a")
    shop.put(run(50, 5), "a")
    shop.put(run(0, 5), "b")
    assert shop.counters.snapshot_inserts == 2
    shop.put(run(90, 5), "a")
    found = shop.find(run(0, 9))
    assert found.state is first
    assert shop.length(run(50, 9)) == 0


def test_two_turns_are_counted_as_the_page_says() -> None:
    """Section 14, 9: the second turn finds the boundary, one that was changed finds nothing."""
    shop = Shop()
    shop.put(run(0, 40), Origin.BOUNDARY)
    shop.put([*run(0, 40), *run(900, 9)], Origin.COMPLETION)
    second = [*run(0, 40), *run(300, 20)]
    assert shop.length(second) == 40
    shop.put([*second, 1], Origin.BOUNDARY)
    changed = shop.find([0, 1, 777, *run(3, 60)])
    assert (changed.length, changed.reason) == (0, Reject.SNAPSHOT_DIVERGED)
    assert changed.diverged is not None
    assert changed.diverged.at == 2
    counters = shop.counters
    assert (counters.snapshot_inserts, counters.snapshot_supersedes) == (3, 1)
    assert (shop.store.entries, shop.store.bytes) == (2, 2 * BLOB)


# Bounds.


def test_least_recently_used_leave_first_by_entries() -> None:
    shop = Shop(entries=3)
    for start in (0, 100, 200):
        shop.put(run(start, 5))
    shop.use(run(0, 9))
    shop.put(run(300, 5))
    assert [shop.length(run(start, 9)) for start in (0, 100, 200, 300)] == [5, 0, 5, 5]
    assert shop.counters.snapshot_evictions_lru == 1
    assert shop.counters.snapshot_self_evictions == 0


def test_least_recently_used_leave_first_by_bytes() -> None:
    shop = Shop(capacity=BLOB * 5 // 2)
    for start in (0, 100, 200):
        shop.put(run(start, 5))
    assert shop.store.bytes == 2 * BLOB
    assert [shop.length(run(start, 9)) for start in (0, 100, 200)] == [0, 5, 5]
    assert shop.counters.snapshot_evictions_lru == 1


def test_looking_changes_no_order_of_use() -> None:
    shop = Shop(entries=2)
    shop.put(run(0, 5))
    shop.put(run(100, 5))
    shop.find(run(0, 9))
    shop.put(run(200, 5))
    assert shop.length(run(0, 9)) == 0


def test_bytes_are_those_of_the_arrays() -> None:
    shop = Shop()
    shop.put(run(0, 7), can_be_cut=True)
    assert shop.store.bytes == 7 * COLUMN


def test_state_driven_out_by_its_own_follower_is_counted() -> None:
    shop = Shop(entries=1)
    shop.put(run(0, 10), Origin.BOUNDARY)
    shop.put(run(0, 20), Origin.COMPLETION)
    assert shop.counters.snapshot_self_evictions == 1
    assert shop.counters.snapshot_evictions_lru == 1
    for key in (key_for("other"), key_for()):
        shop.put(run(0, 30), Origin.COMPLETION, key)
    shop.put(run(100, 5), Origin.COMPLETION)
    assert shop.counters.snapshot_self_evictions == 1
    assert shop.counters.snapshot_evictions_lru == 4


def test_oversized_state_is_refused_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(capacity=BLOB - 1)
    with caplog.at_level(logging.WARNING):
        shop.put(run(0, 5))
        shop.put(run(0, 6))
    assert shop.store.entries == 0
    assert shop.counters.snapshot_rejections_oversized == 2
    assert shop.counters.rejects[Reject.OVERSIZED] == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cache.snapshot.capacity_bytes" in caplog.text


def test_state_of_exactly_the_capacity_fits() -> None:
    shop = Shop(capacity=BLOB)
    shop.put(run(0, 5))
    assert shop.store.entries == 1


@pytest.mark.parametrize("by", ["look-up", "insert"])
def test_state_unused_for_too_long_goes(by: str) -> None:
    shop = Shop(ttl=7200.0)
    shop.put(run(0, 5))
    shop.put(run(100, 5))
    shop.clock.now = 7000.0
    shop.use(run(0, 9))
    shop.clock.now = 7200.0
    assert shop.length(run(100, 9)) == 5
    shop.clock.now = 7201.0
    if by == "insert":
        shop.put(run(200, 5))
    assert shop.length(run(100, 9)) == 0
    assert shop.length(run(0, 9)) == 5
    assert shop.counters.snapshot_evictions_ttl == 1
    assert shop.counters.snapshot_evictions_lru == 0


def test_states_live_for_ever_without_a_ttl() -> None:
    shop = Shop(ttl=0.0)
    shop.put(run(0, 5))
    shop.clock.now = 1e9
    assert shop.length(run(0, 9)) == 5


def test_fit_drives_out_the_oldest() -> None:
    shop = Shop()
    for start in (0, 100, 200):
        shop.put(run(start, 5))
    shop.store.fit(2 * BLOB)
    assert [shop.length(run(start, 9)) for start in (0, 100, 200)] == [0, 5, 5]
    shop.store.fit(0)
    assert shop.store.bytes == 0
    assert shop.counters.snapshot_evictions_lru == 3


def test_reset_forgets_all_and_keeps_the_counters() -> None:
    shop = Shop()
    shop.put(run(0, 5))
    shop.put(run(9, 5))
    assert shop.store.reset() == (2 * BLOB, 2)
    assert shop.store.reset() == (0, 0)
    shop.store.check()
    assert shop.find(run(0, 9)) == FoundState(reason=Reject.EMPTY_SET)
    assert shop.counters.snapshot_inserts == 2


def test_state_that_is_not_there_is_dropped() -> None:
    shop = Shop()
    bad = shop.put(run(0, 5))
    good = shop.put(run(0, 4), origin="y")
    shop.store.drop(bad)
    shop.store.drop(bad)
    shop.store.check()
    assert shop.find(run(0, 9)).state is good


def test_found_state_may_have_left_before_it_is_used() -> None:
    shop = Shop()
    shop.put(run(0, 5))
    found = shop.find(run(0, 9))
    shop.store.reset()
    shop.store.used(found)
    shop.store.check()
