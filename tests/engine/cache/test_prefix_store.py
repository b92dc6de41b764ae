"""What of a prompt may be adopted, what is kept how long, and what is shared."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.cache import ANONYMOUS, Reject
from tests.engine.cache.told_payload import KEY, TOKEN_BYTES, Shelf, key, told

TO_THE_TOKEN = {"floor": 1, "min_prefix": 1}


def sharing(shared: int, length: int) -> list[int]:
    """A prompt that begins with 0, 1, 2, ..."""
    return [*range(shared), *range(10_000, 10_000 + length - shared)]


@pytest.mark.parametrize(
    ("entry", "prompt", "rules", "adopted", "reason"),
    [
        pytest.param(100, sharing(70, 120), {}, 64, None, id="shares-70"),
        pytest.param(100, sharing(40, 120), {}, 32, None, id="shares-40"),
        pytest.param(100, sharing(31, 120), {}, 0, "prefix_too_short", id="shares-31"),
        pytest.param(100, sharing(0, 120), {}, 0, "prefix_too_short", id="shares-nothing"),
        pytest.param(64, sharing(64, 64), {}, 32, None, id="same-64"),
        pytest.param(64, sharing(64, 65), {}, 64, None, id="one-more"),
        pytest.param(100, sharing(100, 300), {}, 96, None, id="goes-on"),
        pytest.param(
            100,
            sharing(63, 120),
            {"min_prefix": 40},
            0,
            "block_boundary_floor",
            id="floor-below-40",
        ),
        pytest.param(
            100,
            sharing(47, 120),
            {"block": 48, "floor": 32},
            0,
            "block_boundary_floor",
            id="block-48",
        ),
        pytest.param(100, sharing(79, 120), {"floor": 16}, 64, None, id="dense-floor-of-16"),
        pytest.param(100, sharing(70, 120), TO_THE_TOKEN, 70, None, id="to-the-token"),
        pytest.param(100, sharing(100, 100), TO_THE_TOKEN, 99, None, id="same-100"),
        pytest.param(50, sharing(50, 80), {"is_apc": False}, 50, None, id="whole-entry"),
        pytest.param(50, sharing(50, 50), {"is_apc": False}, 49, None, id="whole-entry-same"),
        pytest.param(
            50, sharing(40, 80), {"is_apc": False}, 0, "layout_constraints", id="part-of-entry"
        ),
        pytest.param(
            50, sharing(40, 40), {"is_apc": False}, 0, "layout_constraints", id="part-is-all"
        ),
        pytest.param(
            20, sharing(20, 80), {"is_apc": False}, 0, "prefix_too_short", id="whole-but-short"
        ),
        pytest.param(100, [0], {"min_prefix": 1}, 0, "prefix_too_short", id="last-token-is-read"),
        pytest.param(100, [], {}, 0, "prefix_too_short", id="empty-prompt"),
    ],
)
def test_adoption_table(
    entry: int, prompt: list[int], rules: dict[str, Any], adopted: int, reason: str | None
) -> None:
    shelf = Shelf(**rules)
    shelf.insert(range(entry))
    found = shelf.find(prompt)
    assert found.length == found.reach == adopted
    if not adopted:
        assert found.reason == reason


def test_nothing_under_the_key_is_an_empty_set() -> None:
    found = Shelf().find(range(100))
    assert (found.length, found.reason, found.entry_length) == (0, Reject.EMPTY_SET, 0)
    assert (found.diverged, found.pieces, found.node) == (None, (), None)


def test_longest_of_several_entries_is_adopted() -> None:
    shelf = Shelf()
    shelf.insert(sharing(64, 100))
    shelf.insert([*range(128), *range(900, 920)])
    shelf.insert([*range(32), *range(700, 800)])
    found = shelf.find(range(200))
    assert (found.length, found.entry_length) == (128, 148)


# Isolation.


def test_sessions_do_not_share() -> None:
    shelf = Shelf()
    shelf.insert(range(100), key("anna"))
    for other in ("bert", ANONYMOUS, "anna ", ""):
        found = shelf.find(range(100), key(other))
        assert (found.length, found.reason, found.diverged) == (0, Reject.EMPTY_SET, None)
    assert shelf.find(range(100), key("anna")).length == 96


@pytest.mark.parametrize(
    "changed",
    [
        {"template": b"\x01" * 32},
        {"tools": b"\x01" * 32},
        {"tool_choice": "mode:auto"},
        {"lora": (0.5,)},
        {"media": b"\x01" * 32},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_changed_dimension_is_a_miss_that_names_it(changed: dict[str, Any]) -> None:
    shelf = Shelf()
    shelf.insert(range(100))
    found = shelf.find(range(100), replace(KEY, **changed))
    assert (found.length, found.reason) == (0, Reject.EMPTY_SET)
    assert found.diverged is not None
    assert found.diverged.differs == tuple(changed)
    assert shelf.find(range(100)).length == 96


def test_other_rope_factors_are_a_reason_of_their_own() -> None:
    shelf = Shelf()
    shelf.insert(range(100), key(rope="short"))
    long = key(rope="long")
    assert shelf.find(range(100), long).reason is Reject.ROPE_REGIME_MISMATCH
    assert shelf.find(range(100), replace(long, lora=(1.0,))).reason is Reject.EMPTY_SET
    assert shelf.find(range(100), replace(long, session="x")).reason is Reject.EMPTY_SET


# Keeping.


def test_only_the_missing_tail_is_cut() -> None:
    shelf = Shelf()
    shelf.insert(range(100))
    shelf.insert(range(160))
    shelf.insert(sharing(130, 150))
    assert shelf.cuts == [(0, 100), (100, 160), (130, 150)]


def test_new_nodes_say_which_run_they_are() -> None:
    shelf = Shelf()
    (first,) = shelf.insert(range(100))
    (second,) = shelf.insert(range(160))
    assert (first.run().prefix, first.run().tokens) == ((), tuple(range(100)))
    assert second.run().key == KEY
    assert (second.run().prefix, second.run().tokens) == (tuple(range(100)), tuple(range(100, 160)))


def test_longer_entry_replaces_its_beginning() -> None:
    shelf = Shelf()
    shelf.insert(range(100))
    shelf.insert(range(160))
    assert (shelf.store.entries, shelf.store.bytes) == (1, 160 * TOKEN_BYTES)
    shelf.insert(sharing(50, 200))
    assert shelf.store.entries == 2


def test_without_apc_beginnings_stay_entries() -> None:
    shelf = Shelf(is_apc=False)
    shelf.insert(range(50))
    shelf.insert(range(80))
    assert (shelf.store.entries, shelf.store.bytes) == (2, 80 * TOKEN_BYTES)
    assert shelf.find(sharing(60, 90)).length == 50


def test_without_apc_a_beginning_that_is_there_becomes_an_entry() -> None:
    shelf = Shelf(is_apc=False)
    shelf.insert(range(80))
    assert shelf.find(sharing(60, 90)).reason is Reject.LAYOUT_CONSTRAINTS
    shelf.insert(range(50))
    assert shelf.cuts == [(0, 80)]
    assert shelf.find(sharing(60, 90)).length == 50


def test_same_tokens_again_only_refresh() -> None:
    shelf = Shelf(max_entries=2)
    shelf.insert(range(100))
    shelf.insert(range(500, 600))
    assert shelf.insert(range(100)) == []
    shelf.insert(range(700, 800))
    assert (shelf.counters.inserts, len(shelf.cuts)) == (3, 3)
    assert shelf.find(range(200)).length == 96
    assert shelf.find(range(500, 700)).length == 0


def test_beginning_of_what_is_there_only_refreshes_it() -> None:
    shelf = Shelf(max_entries=2)
    shelf.insert(range(100))
    shelf.insert(range(500, 600))
    assert shelf.insert(range(50)) == []
    shelf.insert(range(700, 800))
    assert (shelf.counters.inserts, len(shelf.cuts)) == (3, 3)
    assert shelf.find(range(200)).length == 96
    assert shelf.find(range(500, 700)).length == 0


def test_conversations_with_one_system_prompt_hold_it_once() -> None:
    shelf = Shelf()
    for i in range(50):
        shelf.insert([*range(1000), *range(2000 + 100 * i, 2040 + 100 * i)])
    assert shelf.store.bytes == (1000 + 50 * 40) * TOKEN_BYTES
    assert shelf.store.entries == 50
    shelf.clock.now += 4000.0
    shelf.find([1])
    assert shelf.store.bytes == 0


def test_what_was_found_outlives_its_eviction() -> None:
    shelf = Shelf(max_entries=1)
    shelf.insert(range(100))
    first, second = shelf.find(range(90)), shelf.find(range(200))
    shelf.insert(range(500, 600))
    assert shelf.find(range(200)).length == 0
    kept = [column for payload, count in second.pieces for column in payload.columns[:count]]  # type: ignore[attr-defined]
    assert kept == [*told(range(96), 0, 96).columns]
    assert first.pieces[0][0] is second.pieces[0][0]
    shelf.store.used(second)
    shelf.store.check()
    assert shelf.store.entries == 1


def test_fresh_nodes_are_those_whose_payload_is_new_and_kept() -> None:
    shelf = Shelf(max_entries=2)
    (first,) = shelf.insert(range(100))
    assert shelf.store.take_fresh() == [first]
    assert shelf.store.take_fresh() == []
    (branch,) = shelf.insert(sharing(40, 90))
    fresh = shelf.store.take_fresh()
    assert {node.run().tokens for node in fresh} == {
        tuple(range(40)), tuple(range(40, 100)), tuple(range(10_000, 10_050)),
    }  # fmt: skip
    assert first in fresh
    assert branch in fresh
    (gone,) = shelf.insert(range(500, 600))
    shelf.store.fit(0)
    assert gone.held is None
    assert shelf.store.take_fresh() == []


def test_payload_that_is_not_sound_takes_along_what_stands_on_it() -> None:
    shelf = Shelf()
    shelf.insert(range(500, 600))
    (first,) = shelf.insert(range(100))
    shelf.insert(range(200))
    shelf.store.take_fresh()
    shelf.insert([*range(40), *range(700, 750)])
    shelf.store.lost(first)
    shelf.store.check()
    # Its upper part was split off: a payload of its own, and fresh.
    assert shelf.find(range(300)).length == 32
    assert shelf.store.entries == 2
    for node in shelf.store.take_fresh():
        shelf.store.lost(node)
    shelf.store.check()
    assert shelf.find(range(300)).length == 0
    assert shelf.find(range(500, 700)).length == 96
    assert shelf.counters.evictions_lru == 0


# Bounds.


def test_least_recently_used_goes_first_by_bytes() -> None:
    shelf = Shelf(capacity_bytes=300 * TOKEN_BYTES)
    shelf.insert(range(100))
    shelf.insert(range(1000, 1100))
    shelf.insert(range(2000, 2100))
    shelf.adopt(range(200))
    shelf.insert(range(3000, 3100))
    assert shelf.counters.evictions_lru == 1
    assert shelf.find(range(200)).length == 96
    assert shelf.find(range(1000, 1200)).length == 0
    assert shelf.store.bytes == 300 * TOKEN_BYTES


def test_least_recently_used_goes_first_by_entries() -> None:
    shelf = Shelf(max_entries=2)
    shelf.insert(range(100))
    shelf.insert(range(1000, 1100))
    shelf.find(range(200))  # a look is no use
    shelf.insert(range(2000, 2100))
    assert shelf.find(range(200)).length == 0
    assert (shelf.store.entries, shelf.counters.evictions_lru) == (2, 1)


def test_eviction_leaves_what_others_need() -> None:
    shelf = Shelf(max_entries=1)
    shelf.insert(range(100))
    shelf.insert(sharing(64, 100))
    assert shelf.store.bytes == 100 * TOKEN_BYTES
    assert shelf.find(range(200)).length == 64


def test_too_old_goes_at_look_up() -> None:
    shelf = Shelf(ttl_s=60.0)
    shelf.insert(range(100))
    shelf.clock.now += 60.0
    assert shelf.adopt(range(200)) == 96
    shelf.clock.now += 60.0
    assert shelf.find(range(200)).length == 96
    shelf.clock.now += 0.5
    assert shelf.find(range(200)).reason is Reject.EMPTY_SET
    assert (shelf.counters.evictions_ttl, shelf.counters.evictions_lru) == (1, 0)
    assert shelf.store.bytes == 0


def test_too_old_goes_at_insert_before_what_was_used_least() -> None:
    shelf = Shelf(ttl_s=60.0, max_entries=2)
    shelf.insert(range(100))
    shelf.clock.now += 50.0
    shelf.insert(range(1000, 1100))
    shelf.clock.now += 20.0
    shelf.insert(range(2000, 2100))
    assert (shelf.counters.evictions_ttl, shelf.counters.evictions_lru) == (1, 0)
    assert shelf.find(range(1000, 1200)).length == 96


def test_ttl_of_zero_is_for_ever() -> None:
    shelf = Shelf(ttl_s=0.0)
    shelf.insert(range(100))
    shelf.clock.now += 1e9
    assert shelf.find(range(200)).length == 96


def test_oversized_is_not_kept_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(capacity_bytes=100 * TOKEN_BYTES)
    shelf.insert(range(100))
    with caplog.at_level(logging.WARNING):
        assert shelf.insert(range(1000, 1101)) == []
        shelf.insert(range(101))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "raise cache.prompt.capacity_bytes" in caplog.text
    assert shelf.counters.rejections_oversized == 2
    assert shelf.counters.rejects[Reject.OVERSIZED] == 2
    assert shelf.counters.last_reject is not None
    assert shelf.counters.last_reject.context_len == 101
    assert shelf.find(range(200)).length == 96  # others did not make room for it


def test_fit_makes_room_for_rows() -> None:
    shelf = Shelf()
    for i in range(5):
        shelf.insert(range(1000 * i, 1000 * i + 100))
    shelf.store.fit(250 * TOKEN_BYTES)
    shelf.store.check()
    assert (shelf.store.bytes, shelf.store.entries) == (200 * TOKEN_BYTES, 2)
    assert shelf.find(range(4000, 4200)).length == 96
    shelf.store.fit(0)
    assert (shelf.store.bytes, shelf.store.entries) == (0, 0)
    assert shelf.counters.evictions_lru == 5


def test_adoption_that_was_found_before_a_reset_is_no_use_of_anything() -> None:
    shelf = Shelf()
    shelf.insert(range(100))
    found = shelf.find(range(200))
    shelf.store.reset()
    shelf.store.used(found)
    shelf.store.check()
    assert (found.length, shelf.store.entries) == (96, 0)


def test_reset_lets_go_of_what_was_held_at_once() -> None:
    """Nodes refer to each other: they stay until the garbage collector looks at them."""
    shelf = Shelf()
    nodes = [*shelf.insert(range(100)), *shelf.insert([*range(50), *range(500, 560)])]
    ways = {step for node in nodes for step in node.upward()}
    assert sum(node.held is not None for node in ways) == 3
    shelf.store.reset()
    assert [node.held for node in ways] == [None] * len(ways)


def test_reset_says_what_it_freed_and_keeps_counts() -> None:
    shelf = Shelf()
    shelf.insert(range(100))
    shelf.insert(range(500, 560))
    assert shelf.store.reset() == (160 * TOKEN_BYTES, 2)
    shelf.store.check()
    assert shelf.store.reset() == (0, 0)
    assert shelf.find(range(200)).reason is Reject.EMPTY_SET
    assert (shelf.counters.inserts, shelf.store.bytes) == (2, 0)
    shelf.insert(range(100))
    assert shelf.find(range(200)).length == 96
