"""How large the prompt cache and the snapshots may grow, by model and memory."""

import pytest

from mlxcel.engine.cache.capacity import Footprint, prompt_capacity, snapshot_capacity

GIB, MIB = 1 << 30, 1 << 20
ATTENTION, RECURRENT = 536_870_912, 78_446_592


def footprint(
    entry_bytes: int = ATTENTION,
    left_bytes: int | None = 100 * GIB,
    *,
    state_bytes: int = 0,
    context: int = 32_768,
) -> Footprint:
    return Footprint(
        token_bytes=entry_bytes // 8192,
        state_bytes=state_bytes,
        context=context,
        left_bytes=left_bytes,
    )


def test_snapshot_of_the_checked_example() -> None:
    model = footprint(state_bytes=RECURRENT)
    assert model.snapshot_bytes == 615_317_504
    assert snapshot_capacity(None, model) == 3_691_905_024


@pytest.mark.parametrize(
    ("entry", "left", "expected"),
    [
        pytest.param(GIB, 100 * GIB, 6 * GIB, id="six-entries"),
        pytest.param(GIB, 16 * GIB, 4 * GIB, id="quarter-of-what-is-left"),
        pytest.param(8 * GIB, 16 * GIB, 8 * GIB, id="one-entry-that-is-half"),
        pytest.param(8 * GIB + 8192, 16 * GIB, 4 * GIB, id="one-entry-that-is-more-than-half"),
        pytest.param(64 * MIB, 100 * GIB, 2 * GIB, id="never-below-2-gib"),
        pytest.param(GIB, 1 * GIB, 2 * GIB, id="never-below-2-gib-in-small-memory"),
        pytest.param(GIB, None, 2 * GIB, id="memory-unknown"),
    ],
)
def test_capacity_follows_model_and_memory(entry: int, left: int | None, expected: int) -> None:
    assert prompt_capacity(None, None, footprint(entry, left)) == expected


@pytest.mark.parametrize(
    ("entry", "state", "left", "expected"),
    [
        pytest.param(ATTENTION, RECURRENT, 8 * GIB, 2 * GIB, id="quarter-of-what-is-left"),
        pytest.param(0, RECURRENT, 8 * GIB, 512 * MIB, id="never-below-512-mib"),
        pytest.param(0, RECURRENT, None, 512 * MIB, id="memory-unknown"),
        pytest.param(4 * GIB, 0, 9 * GIB, 4 * GIB, id="one-snapshot-that-fits-into-half"),
        pytest.param(5 * GIB, 0, 9 * GIB, 9 * GIB // 4, id="one-snapshot-that-does-not"),
    ],
)
def test_snapshot_capacity_follows_model_and_memory(
    entry: int, state: int, left: int | None, expected: int
) -> None:
    assert snapshot_capacity(None, footprint(entry, left, state_bytes=state)) == expected


def test_short_window_makes_small_entries() -> None:
    assert footprint(context=2048).entry_bytes == ATTENTION // 4
    assert footprint(context=1 << 20).entry_bytes == ATTENTION


@pytest.mark.parametrize(
    ("explicit", "ram_mib", "expected"),
    [
        pytest.param(None, -1, None, id="ram-unbounded"),
        pytest.param(None, 0, 0, id="ram-off"),
        pytest.param(None, 300, 300 * MIB, id="ram-mib"),
        pytest.param(1000, None, 1000, id="explicit-is-final-though-small"),
        pytest.param(1000, 0, 1000, id="explicit-over-off"),
        pytest.param(1000, -1, 1000, id="explicit-over-unbounded"),
    ],
)
def test_what_was_asked_for_wins(
    explicit: int | None, ram_mib: int | None, expected: int | None
) -> None:
    assert prompt_capacity(explicit, ram_mib, footprint()) == expected


def test_explicit_snapshot_bytes_are_final() -> None:
    assert snapshot_capacity(5, footprint()) == 5
