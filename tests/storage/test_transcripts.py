"""Conversations: all that was said in them, or nothing."""

from mlxcel.storage.shelf import Bounds
from mlxcel.storage.transcripts import Transcripts
from tests.storage.keeping import WIDE, Hand, message


def test_items_come_in_the_order_in_which_they_were_said() -> None:
    kept = Transcripts(WIDE)
    kept.append("o", "c", [message("1", "a\r\nb"), message("2")])
    kept.append("o", "c", [message("3")])
    assert kept.items("o", "c") == [message("1", "a\r\nb"), message("2"), message("3")]
    assert kept.items("o", "d") == []
    assert kept.items("p", "c") == []


def test_one_that_grows_too_large_begins_anew() -> None:
    kept = Transcripts(Bounds(max_entries=9, max_bytes=150, ttl_s=0))
    kept.append("o", "c", [message("1")])
    kept.append("o", "c", [message("2")])
    assert len(kept.items("o", "c")) == 2
    kept.append("o", "c", [message("3")])
    assert kept.items("o", "c") == []
    kept.append("o", "c", [message("4")])
    assert kept.items("o", "c") == [message("4")]


def test_reading_one_keeps_it() -> None:
    clock = Hand()
    kept = Transcripts(Bounds(max_entries=9, max_bytes=999, ttl_s=10), clock=clock)
    kept.append("o", "c", [message("1")])
    for _ in range(3):
        clock.now_s += 9
        assert kept.items("o", "c") == [message("1")]
    clock.now_s += 11
    assert kept.items("o", "c") == []


def test_off() -> None:
    kept = Transcripts(Bounds(max_entries=0, max_bytes=999, ttl_s=0))
    kept.append("o", "c", [message("1")])
    assert not kept.is_on
    assert kept.items("o", "c") == []
