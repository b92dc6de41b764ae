"""Conversations: sessions with bounds of their own."""

from dataclasses import replace
from typing import Any

from mlxcel.engine.cache.adopt import SessionRules
from mlxcel.engine.cache.store import Found
from tests.engine.cache.told_payload import Shelf, columns_of, key

CONVERSATIONS = SessionRules(most=2, entries=2, ttl_s=100.0, max_tokens=150)


def conversations(**changes: Any) -> Shelf:
    rules = replace(CONVERSATIONS, **changes)
    return Shelf(floor=1, min_prefix=1, ttl_s=10.0, sessions=rules)


def test_session_keeps_its_newest_entries() -> None:
    shelf = conversations()
    for i in range(4):
        shelf.insert([1, 2, 3, 100 + i, 5], key("trip"))
    assert shelf.store.entries == 2
    assert shelf.find([1, 2, 3, 103, 5, 6], key("trip")).length == 5
    assert shelf.find([1, 2, 3, 101, 5, 6], key("trip")).length == 3


def test_least_recently_used_session_makes_room() -> None:
    shelf = conversations()
    shelf.insert(range(10), key("a"))
    shelf.insert(range(10), key("b"))
    shelf.adopt(range(20), key("a"))
    shelf.insert(range(10), key("c"))
    lengths = [shelf.find(range(20), key(name)).length for name in "abc"]
    assert lengths == [10, 0, 10]


def test_session_is_idle_when_none_of_its_entries_is_used() -> None:
    shelf = conversations()
    shelf.insert([1, 2, 3], key("trip"))
    shelf.insert([1, 5, 6], key("trip"))
    for _ in range(3):
        shelf.clock.now += 99.0
        assert shelf.adopt([1, 5, 6, 7], key("trip")) == 3
    assert shelf.find([1, 2, 3, 4], key("trip")).length == 3
    shelf.clock.now += 101.0
    assert shelf.find([1, 5, 6, 7], key("trip")).length == 0
    assert shelf.counters.evictions_ttl == 2


def test_too_long_a_conversation_is_not_kept() -> None:
    shelf = conversations()
    shelf.insert(range(150), key("trip"))
    shelf.insert(range(151), key("trip"))
    assert shelf.find(range(300), key("trip")).length == 150


def test_anonymous_session_is_no_conversation() -> None:
    shelf = conversations()
    for i in range(4):
        shelf.insert([*range(100 * i, 100 * i + 99)])
    shelf.insert([*range(1000, 1200)])
    assert shelf.store.entries == 5
    shelf.clock.now += 11.0
    shelf.find([1])
    assert shelf.store.entries == 0


def test_going_back_is_told_where_the_newest_entry_begins_otherwise() -> None:
    shelf = conversations()
    shelf.insert([1, 2, 3, 4], key("trip"))
    assert not shelf.find([1, 2, 9], key("trip")).is_older  # rolled back within the newest
    shelf.insert([1, 2, 9, 8], key("trip"))
    assert shelf.find([1, 2, 3, 4, 5], key("trip")).is_older
    assert not shelf.find([1, 2, 9, 8, 7], key("trip")).is_older
    assert not shelf.find([1, 2, 7], key("trip")).is_older
    assert not shelf.find([5, 5], key("trip")).is_older


def test_strangers_do_not_go_back() -> None:
    shelf = conversations()
    shelf.insert([1, 2, 3, 4])
    shelf.insert([1, 2, 9, 8])
    assert not shelf.find([1, 2, 3, 4, 5]).is_older


def test_newest_of_a_session_is_handed_out_whole() -> None:
    shelf = conversations()
    assert shelf.store.newest("trip") is None
    shelf.insert([1, 2, 3], key("trip"))
    shelf.insert([1, 2, 9, 8], key("trip"))
    shelf.insert([1, 2, 9, 8], key("other"))
    shelf.adopt([1, 2, 3, 4], key("trip"))
    kept = shelf.store.newest("trip")
    assert kept is not None
    found_key, tokens, pieces = kept
    assert (found_key, tokens) == (key("trip"), (1, 2, 9, 8))
    whole = Found(key=found_key, tokens=tokens, length=4, pieces=pieces)
    assert columns_of(whole) == ((0, 1), (1, 2), (2, 9), (3, 8))
