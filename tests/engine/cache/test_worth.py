"""Whether to bring KV from disk or to compute it."""

import pytest

from mlxcel.engine.cache.worth import LEAST_TOKENS, TRIED_AGAIN, Worth


def measured(*, tokens_a_second: float, bytes_a_second: float) -> Worth:
    worth = Worth(token_bytes=100)
    worth.computed(1000, 1000 / tokens_a_second)
    worth.fetched(1000, 1000 * 100 / bytes_a_second)
    return worth


@pytest.mark.parametrize(
    ("tokens_a_second", "bytes_a_second", "is_fetch"),
    [
        pytest.param(500, 1e6, True, id="slow-model"),
        pytest.param(90_000, 1e6, False, id="slow-disk"),
        pytest.param(9_999, 1e6, True, id="just-worth-it"),
        pytest.param(10_001, 1e6, False, id="just-not"),
    ],
)
def test_whichever_takes_less_time(
    tokens_a_second: float, bytes_a_second: float, is_fetch: bool
) -> None:
    worth = measured(tokens_a_second=tokens_a_second, bytes_a_second=bytes_a_second)
    assert worth.is_fetch() is is_fetch


def test_what_is_unknown_is_tried() -> None:
    worth = Worth(token_bytes=100)
    assert worth.is_fetch()
    worth.computed(1000, 0.001)
    assert worth.is_fetch()


def test_short_chunk_measures_nothing() -> None:
    worth = measured(tokens_a_second=10_001, bytes_a_second=1e6)
    worth.computed(LEAST_TOKENS - 1, 100.0)
    worth.fetched(LEAST_TOKENS - 1, 0.0)
    assert not worth.is_fetch()


def test_it_follows_what_changes() -> None:
    worth = measured(tokens_a_second=20_000, bytes_a_second=1e6)
    for _ in range(12):
        worth.computed(1000, 1.0)  # the device is shared with somebody now
    assert worth.is_fetch()


def test_slow_disk_is_tried_now_and_then() -> None:
    worth = measured(tokens_a_second=90_000, bytes_a_second=1e6)
    tried = [worth.is_fetch() for _ in range(2 * (TRIED_AGAIN + 1))]
    assert tried == [*[False] * TRIED_AGAIN, True] * 2
