"""The KV budget: who holds how many blocks, and who may start."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.engine.memory.pool import KVPool, blocks_of
from mlxcel.weights.card import MemoryCard

GB = 1 << 30


@pytest.mark.parametrize(
    ("tokens", "blocks"),
    [(0, 4), (1, 4), (32, 4), (33, 8), (1000, 128)],
    ids=["none", "one", "block", "block-and-one", "1000"],
)
def test_need_is_whole_blocks_in_every_layer(tokens: int, blocks: int) -> None:
    assert KVPool(None, 4, 0.0).need(tokens) == blocks


def test_row_under_a_cap_needs_no_more_than_the_cap() -> None:
    pool = KVPool(8, 4, 0.0, cap=64)
    assert (pool.need(33), pool.need(10_000)) == (8, 8)
    assert pool.fits_at_all(10_000)


def test_model_without_growing_kv_needs_nothing() -> None:
    assert KVPool(None, 0, 0.01).need(1000) == 0


def test_prompt_too_large_for_an_empty_pool() -> None:
    pool = KVPool(16, 4, 0.5)
    assert pool.fits_at_all(128)
    assert not pool.fits_at_all(129)
    assert KVPool(None, 4, 0.5).fits_at_all(1 << 40)


def test_waits_until_a_row_ends() -> None:
    pool = KVPool(16, 4, 0.0)
    pool.take("a", 96)
    assert not pool.has_room(64, is_decoding=True)
    pool.free("a")
    assert pool.has_room(64, is_decoding=True)
    assert pool.live == 0


def test_row_fits_once_others_have_gone() -> None:
    pool = KVPool(5, 1, 0.0)
    pool.take("a", 64)
    pool.take("b", 64)
    assert not pool.could_fit(64, [])
    assert not pool.could_fit(129, ["a", "unknown"])
    assert pool.could_fit(96, ["a"])
    assert pool.holds("a")
    assert not pool.holds("unknown")


@pytest.mark.parametrize(
    ("is_decoding", "tokens", "expected"),
    [(True, 90 * 32, True), (True, 91 * 32, False), (False, 100 * 32, True)],
    ids=["leaves-the-watermark", "breaks-it", "nobody-decodes"],
)
def test_watermark_counts_while_rows_decode(is_decoding: bool, tokens: int, expected: bool) -> None:
    assert KVPool(100, 1, 0.1).has_room(tokens, is_decoding=is_decoding) is expected


def test_no_watermark_without_a_budget() -> None:
    pool = KVPool(None, 1, 0.5)
    pool.take("a", 3200)
    assert pool.has_room(1 << 30, is_decoding=True)
    assert pool.live == 100


def test_growth_stops_at_the_budget_and_leaves_the_account_alone() -> None:
    pool = KVPool(3, 1, 0.5)
    pool.take("a", 32)
    pool.take("b", 32)
    assert pool.grow("a", 32)
    assert pool.grow("a", 33)
    assert not pool.grow("b", 33)
    assert pool.live == 3
    pool.free("a")
    assert pool.grow("b", 33)


def test_unknown_keys_are_ignored_by_free() -> None:
    pool = KVPool(3, 1, 0.0)
    pool.free("nobody")
    pool.take("a", 1)
    pool.free("a")
    pool.free("a")
    assert pool.live == 0


KEYS = st.sampled_from("abcdef")
WORK = st.lists(st.tuples(st.sampled_from(["take", "grow", "free"]), KEYS, st.integers(0, 400)))


@settings(max_examples=200)
@given(
    budget=st.none() | st.integers(0, 60),
    layers=st.integers(1, 3),
    cap=st.sampled_from([0, 64]),
    work=WORK,
)
def test_live_is_what_the_rows_hold_and_within_the_budget(
    budget: int | None, layers: int, cap: int, work: list[tuple[str, str, int]]
) -> None:
    pool = KVPool(budget, layers, 0.0, cap=cap)
    held: dict[str, int] = {}
    for what, key, tokens in work:
        if what == "free":
            pool.free(key)
            held.pop(key, None)
        elif what == "take" and key not in held and pool.has_room(tokens, is_decoding=True):
            pool.take(key, tokens)
            held[key] = tokens
        elif what == "grow" and key in held and pool.grow(key, tokens):
            held[key] = max(held[key], tokens)
        pool.check()
        assert pool.live == sum(pool.need(tokens) for tokens in held.values())
        assert budget is None or pool.live <= budget
    for key in list(held):
        pool.free(key)
    assert pool.live == 0


# The budget from a setting.


def card(**changes: int) -> MemoryCard:
    """1 GiB of weights; a block is 32 x 2 x 4 x 64 x 2 = 32 KiB."""
    values = {
        "weights_bytes": GB,
        "attention_layers": 16,
        "kv_heads": 4,
        "head_dim": 64,
        "kv_dtype_bytes": 2,
        "state_bytes": 0,
        "hidden": 1024,
        "widest_projection": 4096,
        "vocab": 50_000,
    }
    return MemoryCard(**values | changes)


@pytest.mark.parametrize("setting", [None, 0, "0", "none"])
def test_no_budget(setting: str | int | None) -> None:
    assert blocks_of(setting, card(), 8 * GB, 2048) is None


@pytest.mark.parametrize("setting", [GB, str(GB)], ids=["number", "text"])
def test_bytes_are_so_many_blocks(setting: str | int) -> None:
    assert blocks_of(setting, card(), None, 2048) == GB // (32 * 1024)


def test_auto_is_what_weights_and_activations_leave() -> None:
    reserve = 2048 * (4 * 1024 + 2 * 4096) * 4 + 50_000 * 4 + 4 * (1000 + 50_000 * 4)
    expected = (8 * GB - GB - reserve) // (32 * 1024)
    got = blocks_of("auto", card(state_bytes=1000), 8 * GB, 2048, slots=4)
    assert got == expected


def test_auto_is_unbounded_where_nothing_is_known() -> None:
    assert blocks_of("auto", card(), None, 2048) is None
    assert blocks_of("auto", card(attention_layers=0), 8 * GB, 2048) is None


def test_auto_is_unbounded_where_nothing_is_left(caplog: pytest.LogCaptureFixture) -> None:
    assert blocks_of("auto", card(), GB, 2048) is None
    assert "no KV budget" in caplog.text
