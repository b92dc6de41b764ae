"""Three bounds, held at every moment."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.storage.shelf import Bounds, Key, Shelf
from tests.storage.keeping import Hand


def shelf(clock: Hand, *, entries: int = 9, size: int = 99, ttl_s: float = 0) -> Shelf:
    return Shelf(Bounds(max_entries=entries, max_bytes=size, ttl_s=ttl_s), clock=clock)


def test_the_least_recently_used_goes_first() -> None:
    kept = shelf(Hand(), entries=2)
    kept.put(("o", "a"), b"1")
    kept.put(("o", "b"), b"1")
    kept.touch(("o", "a"))
    kept.put(("o", "c"), b"1")
    assert [kept.get(("o", name)) for name in "abc"] == [b"1", None, b"1"]


def test_looking_is_no_use() -> None:
    kept = shelf(Hand(), entries=2)
    kept.put(("o", "a"), b"1")
    kept.put(("o", "b"), b"1")
    assert kept.get(("o", "a")) == b"1"
    kept.put(("o", "c"), b"1")
    assert kept.get(("o", "a")) is None


def test_bytes_push_out_what_is_older() -> None:
    kept = shelf(Hand(), size=10)
    kept.put(("o", "a"), b"1" * 6)
    kept.put(("o", "b"), b"1" * 4)
    kept.put(("o", "c"), b"1")
    assert [kept.get(("o", name)) is not None for name in "abc"] == [False, True, True]
    assert kept.total_bytes == 5


def test_what_is_larger_than_all_is_gone_at_once() -> None:
    kept = shelf(Hand(), size=10)
    kept.put(("o", "a"), b"1" * 11)
    assert kept.get(("o", "a")) is None
    assert kept.total_bytes == 0


@pytest.mark.parametrize(("waited_s", "is_there"), [(10.0, True), (10.1, False)])
def test_what_nobody_used_in_time_is_gone(waited_s: float, is_there: bool) -> None:
    clock = Hand()
    kept = shelf(clock, ttl_s=10)
    kept.put(("o", "a"), b"1")
    clock.now_s += waited_s
    assert (kept.get(("o", "a")) is not None) is is_there
    assert (kept.pop(("o", "a")) is not None) is is_there


def test_a_use_begins_the_time_anew() -> None:
    clock = Hand()
    kept = shelf(clock, ttl_s=10)
    kept.put(("o", "a"), b"1")
    clock.now_s += 9
    kept.touch(("o", "a"))
    clock.now_s += 9
    assert kept.get(("o", "a")) == b"1"


def test_without_a_limit_of_time_nothing_expires() -> None:
    clock = Hand()
    kept = shelf(clock, ttl_s=0)
    kept.put(("o", "a"), b"1")
    clock.now_s += 1e9
    assert kept.get(("o", "a")) == b"1"


KEYS = st.tuples(st.sampled_from("op"), st.sampled_from("abcd"))
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(1, 12)),
    st.tuples(st.just("get"), KEYS, st.just(0)),
    st.tuples(st.just("touch"), KEYS, st.just(0)),
    st.tuples(st.just("pop"), KEYS, st.just(0)),
    st.tuples(st.just("wait"), KEYS, st.integers(1, 4)),
)


@given(
    st.lists(STEPS, max_size=40),
    st.integers(0, 4),
    st.sampled_from([0, 10, 20, 1000]),
    st.sampled_from([0, 5]),
)
def test_bounds_hold_and_it_does_what_a_plain_list_would(
    steps: list[tuple[str, Key, int]], entries: int, size: int, ttl_s: int
) -> None:
    clock, dropped = Hand(), []
    bounds = Bounds(max_entries=entries, max_bytes=size, ttl_s=ttl_s)
    kept = Shelf(bounds, clock=clock, on_drop=dropped.append)
    model: OrderedDict[Key, tuple[bytes, float]] = OrderedDict()

    def shrink() -> None:
        while model and (
            len(model) > entries
            or sum(len(value) for value, _ in model.values()) > size
            or (ttl_s and clock.now_s - next(iter(model.values()))[1] > ttl_s)
        ):
            model.popitem(last=False)

    for what, key, number in steps:
        value = b"x" * number
        if what != "wait":
            shrink()
        match what:
            case "put":
                model.pop(key, None)
                model[key] = (value, clock.now_s)
                shrink()
                kept.put(key, value)
            case "get":
                found = model.get(key)
                assert kept.get(key) == (None if found is None else found[0])
            case "touch":
                if key in model:
                    model[key] = (model.pop(key)[0], clock.now_s)
                kept.touch(key)
            case "pop":
                found = model.pop(key, None)
                assert kept.pop(key) == (None if found is None else found[0])
            case "wait":
                clock.now_s += number
        assert len(kept) == len(model) <= entries
        assert kept.total_bytes == sum(len(value) for value, _ in model.values()) <= size
    puts = sum(step[0] == "put" for step in steps)
    assert len(dropped) == puts - len(kept)
