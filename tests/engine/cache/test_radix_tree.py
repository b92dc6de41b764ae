"""Runs of tokens in memory and in files: split anywhere, read back, lost, and found again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.engine.cache.node import Node, agreed
from mlxcel.engine.cache.tree import Piece
from tests.engine.cache.told_payload import KEY, TOKEN_BYTES, Shelf, Told, key, told

A = tuple(range(100))
B = (*range(40), *range(500, 560))


def shelf(**changes: object) -> Shelf:
    return Shelf(**{"floor": 1, "min_prefix": 1, **changes})  # type: ignore[arg-type]


def write(store: Shelf, node: Node, file: str) -> None:
    store.store.stored(node, Piece(file, 0, len(node.tokens)))
    store.store.check()


def read(store: Shelf, node: Node) -> None:
    """What the columns of its file say."""
    store.store.fill(node, told((*node.prefix, *node.tokens), node.start, node.stop))
    store.store.check()


@given(
    st.lists(st.integers(0, 2), max_size=40),
    st.lists(st.integers(0, 2), max_size=40),
    st.integers(0, 40),
)
def test_agreed_is_the_first_difference(run: list[int], tokens: list[int], at: int) -> None:
    at = min(at, len(tokens))
    rest = tokens[at:]
    expected = 0
    while expected < min(len(run), len(rest)) and run[expected] == rest[expected]:
        expected += 1
    assert agreed(tuple(run), tuple(tokens), at) == expected


def test_agreed_in_long_runs() -> None:
    run = tuple(range(10_000))
    for at in (0, 1, 4999, 9998, 9999):
        assert agreed(run, (*run[:at], -1, *run[at + 1 :]), 0) == at


def test_split_cuts_payload_and_piece() -> None:
    store = shelf()
    (first,) = store.insert(A)
    write(store, first, "a")
    store.insert(B)
    upper = first.parent
    assert upper is not None
    assert (upper.piece, first.piece) == (Piece("a", 0, 40), Piece("a", 40, 100))
    assert isinstance(upper.held, Told)
    assert isinstance(first.held, Told)
    assert upper.held.columns == told(A, 0, 40).columns
    assert first.held.columns == told(A, 40, 100).columns
    assert store.store.bytes == 160 * TOKEN_BYTES


def test_run_that_is_written_after_its_node_was_split_is_known_in_all_parts() -> None:
    store = shelf()
    (first,) = store.insert(A)
    store.insert(B)
    store.insert(A[:70] + B)
    store.store.stored(first, Piece("a", 0, 100))
    store.store.check()
    pieces = [node.piece for node in first.upward()]
    assert pieces == [Piece("a", 70, 100), Piece("a", 40, 70), Piece("a", 0, 40)]


def test_run_that_is_written_after_its_eviction_is_found_on_disk() -> None:
    store = shelf()
    (first,) = store.insert(A)
    store.store.fit(0)
    assert not first.is_attached
    store.store.stored(first, Piece("a", 0, 100))
    store.store.check()
    found = store.find([*A, 1])
    assert (found.length, found.reach, store.store.entries) == (0, 100, 0)
    assert [node.piece for node in found.missing] == [Piece("a", 0, 100)]


def test_run_that_is_written_after_a_reset_is_forgotten() -> None:
    store = shelf()
    (first,) = store.insert(A)
    store.store.reset()
    store.store.stored(first, Piece("a", 0, 100))
    assert store.find(A).reason == "empty_set"


def test_evicted_entry_is_read_back() -> None:
    store = shelf()
    (first,) = store.insert(A)
    write(store, first, "a")
    store.store.fit(0)
    store.store.check()
    assert (store.store.bytes, store.store.entries) == (0, 0)
    found = store.find([*A, 1])
    assert (found.length, found.reach, found.reason) == (0, 100, None)
    assert found.missing == (first,)
    read(store, first)
    assert (store.store.bytes, store.store.entries) == (100 * TOKEN_BYTES, 1)
    found = store.find([*A, 1])
    assert (found.length, found.reach, found.missing) == (100, 100, ())


def test_what_was_read_back_is_the_last_to_go_again() -> None:
    store = shelf(max_entries=2)
    (first,) = store.insert(A)
    write(store, first, "a")
    store.insert(range(1000, 1100))
    store.insert(range(2000, 2100))
    read(store, first)
    assert store.find(range(1000, 1200)).length == 0
    store.insert(range(3000, 3100))
    assert store.find([*A, 1]).length == 100


def test_way_is_read_from_its_beginning() -> None:
    store = shelf()
    (first,) = store.insert(A)
    (second,) = store.insert([*A, *range(700, 750)])
    write(store, first, "a")
    write(store, second, "b")
    store.store.fit(0)
    found = store.find([*A, *range(700, 730)])
    assert (found.reach, found.missing) == (129, (first, second))
    read(store, second)  # nothing stands below it yet
    assert store.store.bytes == 0
    read(store, first)
    assert store.find([*A, *range(700, 730)]).length == 100
    assert store.store.entries == 1
    read(store, second)
    assert store.find([*A, *range(700, 730)]).length == 129
    assert store.store.entries == 1  # the end of the first run was nobody's


def test_only_what_a_prompt_can_use_is_missing() -> None:
    store = shelf(floor=32, min_prefix=32)
    (first,) = store.insert(A)
    (second,) = store.insert([*A, *range(700, 750)])
    write(store, first, "a")
    write(store, second, "b")
    store.store.fit(0)
    found = store.find([*A, *range(700, 720), 5])
    assert (found.reach, found.missing) == (96, (first,))


def test_run_that_was_split_while_it_was_read_is_filled_in_all_parts() -> None:
    store = shelf()
    (first,) = store.insert(A)
    write(store, first, "a")
    store.store.fit(0)
    (missing,) = store.find([*A, 1]).missing
    store.store.place(KEY, B, 40, Piece("b", 0, 60))
    store.store.check()
    store.store.fill(missing, told(A, 0, 100))
    store.store.check()
    assert store.find([*A, 1]).length == 100


def test_what_was_read_for_nobody_changes_nothing() -> None:
    store = shelf()
    (first,) = store.insert(A)
    write(store, first, "a")
    read(store, first)  # in memory all the time
    assert store.store.bytes == 100 * TOKEN_BYTES
    store.store.fit(0)
    store.store.gone("a")
    read(store, first)
    assert (store.store.bytes, store.find(A).reason) == (0, "empty_set")


def test_row_that_read_its_prompt_itself_fills_what_is_on_disk_only() -> None:
    store = shelf()
    (first,) = store.insert(A)
    (second,) = store.insert([*A, *range(700, 750)])
    write(store, first, "a")
    write(store, second, "b")
    store.store.fit(0)
    store.cuts.clear()
    (third,) = store.insert([*A, *range(700, 720), *range(800, 830)])
    assert store.cuts == [(0, 150)]
    assert (third.start, third.piece) == (120, None)
    assert store.find([*A, *range(700, 720), *range(800, 840)]).length == 150
    assert store.find([*A, *range(700, 760)]).reach == 150
    assert store.store.bytes == 150 * TOKEN_BYTES


def test_same_tokens_as_on_disk_are_not_written_again() -> None:
    store = shelf()
    (first,) = store.insert(A)
    write(store, first, "a")
    store.store.fit(0)
    assert store.insert(A) == []
    assert store.find([*A, 1]).length == 100


def test_unreadable_run_takes_along_what_stands_on_it() -> None:
    store = shelf()
    for file, tokens in (("a", A), ("b", (*A, *range(700, 750))), ("c", B)):
        (node,) = store.insert(tokens)
        write(store, node, file)
    store.store.fit(0)
    found = store.find([*A, *range(700, 760)])
    assert [node.stop for node in found.missing] == [40, 100, 150]
    store.store.lost(found.missing[1])  # the first part stands in the same file
    store.store.check()
    assert store.find([*A, *range(700, 760)]).reason == "empty_set"
    assert store.find(B).reason == "empty_set"


def test_unsound_memory_leaves_what_is_on_disk() -> None:
    store = shelf()
    (first,) = store.insert(A)
    write(store, first, "a")
    store.insert(B)
    store.adopt([*A, 1])
    store.store.lost(first)
    store.store.check()
    assert (store.store.bytes, store.store.entries) == (100 * TOKEN_BYTES, 1)
    found = store.find([*A[:40], 7, 7])
    assert (found.entry_length, found.diverged.entry_ids[-1]) == (100, 507)  # type: ignore[union-attr]
    assert store.find([*A, 1]).missing == (first,)


def test_removed_file_of_what_is_in_memory_changes_nothing_there() -> None:
    store = shelf()
    (first,) = store.insert(A)
    write(store, first, "a")
    store.store.gone("a")
    store.store.gone("unknown")
    store.store.check()
    assert (first.piece, store.find([*A, 1]).length) == (None, 100)
    store.store.fit(0)
    assert store.find(A).reason == "empty_set"


# After a restart.


def test_files_make_the_tree_again() -> None:
    store = shelf()
    assert store.store.place(KEY, A, 0, Piece("a", 0, 100))
    assert store.store.place(KEY, B, 40, Piece("b", 0, 60))
    assert store.store.place(KEY, [*B, *range(700, 720)], 100, Piece("c", 0, 20))
    store.store.check()
    assert (store.store.entries, store.store.bytes) == (0, 0)
    found = store.find([*B, *range(700, 730)])
    assert found.reach == 120
    assert [node.piece for node in found.missing] == [
        Piece("a", 0, 40),
        Piece("b", 0, 60),
        Piece("c", 0, 20),
    ]
    for node in found.missing:
        read(store, node)
    assert store.find([*B, *range(700, 730)]).length == 120
    assert store.store.entries == 1


def test_file_that_stands_on_nothing_is_of_no_use() -> None:
    store = shelf()
    assert not store.store.place(KEY, B, 40, Piece("b", 0, 60))
    store.store.place(KEY, A[:39], 0, Piece("a", 0, 39))
    assert not store.store.place(KEY, B, 40, Piece("b", 0, 60))
    assert not store.store.place(key("anna"), B, 40, Piece("b", 0, 60))
    assert not store.store.place(KEY, A[:39], 39, Piece("b", 0, 0))
    store.store.check()
    assert store.find(B).reach == 39


def test_files_that_overlap_are_used_as_far_as_they_are_needed() -> None:
    store = shelf()
    store.store.place(KEY, A[:60], 0, Piece("a", 0, 60))
    assert store.store.place(KEY, A, 0, Piece("b", 0, 100))
    assert store.store.place(KEY, A[:80], 20, Piece("c", 0, 60))
    store.store.check()
    found = store.find([*A, 1])
    assert [node.piece for node in found.missing] == [Piece("a", 0, 60), Piece("b", 60, 100)]


def test_file_of_a_part_of_what_is_in_memory_is_known_for_that_part() -> None:
    store = shelf()
    store.insert(A)
    assert store.store.place(KEY, A[:80], 20, Piece("a", 0, 60))
    store.store.check()
    assert store.find([*A, 1]).length == 100
    store.store.fit(0)
    store.store.check()
    assert store.find(A).reason == "empty_set"  # its beginning was in memory alone


@pytest.mark.parametrize("is_apc", [True, False], ids=["apc", "whole"])
def test_what_was_evicted_down_to_its_beginning_still_has_an_end(is_apc: bool) -> None:
    store = shelf(is_apc=is_apc)
    (first,) = store.insert(A)
    write(store, first, "a")
    store.insert([*A, *range(700, 750)])
    store.store.fit(0)
    store.store.check()
    found = store.find([*A, *range(700, 760)])
    assert (found.reach, found.entry_length) == (100, 100)


def test_without_apc_the_whole_entry_is_read_back() -> None:
    store = shelf(is_apc=False)
    (first,) = store.insert(A)
    (second,) = store.insert([*A, *range(700, 750)])
    write(store, first, "a")
    write(store, second, "b")
    store.store.fit(0)
    found = store.find([*A, *range(700, 720)])
    assert (found.reach, found.missing) == (100, (first,))
    whole = store.find([*A, *range(700, 760)])
    assert (whole.reach, whole.missing) == (150, (first, second))
    for node in whole.missing:
        read(store, node)
    assert store.find([*A, *range(700, 760)]).length == 150


def test_without_apc_where_a_run_was_split_is_no_entry() -> None:
    store = shelf(is_apc=False)
    for file, tokens in (("a", A), ("b", B)):
        (node,) = store.insert(tokens)
        write(store, node, file)
    store.store.fit(0)
    missing = store.find([*A, 1]).missing
    assert [node.stop for node in missing] == [40, 100]
    for node in missing:
        read(store, node)
    assert store.store.entries == 1
    assert store.find([*A[:40], 1]).reason == "layout_constraints"


def test_longer_run_on_disk_stands_for_its_beginning() -> None:
    store = shelf()
    store.store.place(KEY, A, 0, Piece("a", 0, 100))
    store.store.place(KEY, [*A, *range(700, 720)], 100, Piece("b", 0, 20))
    assert store.find([*A[:50], 1, 1]).entry_length == 120


def test_what_does_not_fit_in_memory_is_not_held() -> None:
    store = shelf(capacity_bytes=50 * TOKEN_BYTES)
    store.store.place(KEY, A, 0, Piece("a", 0, 100))
    (missing,) = store.find([*A, 1]).missing
    read(store, missing)
    assert (store.store.bytes, store.find([*A, 1]).reach) == (0, 100)
