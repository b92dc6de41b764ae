import pytest

from mlxcel.core.window import effective_window, slot_count, slot_share


@pytest.mark.parametrize(
    ("ctx_size", "slots", "share"),
    [
        pytest.param(4096, 4, 1024, id="even"),
        pytest.param(4099, 4, 1024, id="the-rest-is-lost"),
        pytest.param(0, 4, 0, id="the-models-own"),
    ],
)
def test_slots_share_the_context(ctx_size: int, slots: int, share: int) -> None:
    assert slot_share(ctx_size, slots) == share


@pytest.mark.parametrize(
    ("share", "train_window", "window"),
    [
        pytest.param(1024, 2048, 1024, id="as-configured"),
        pytest.param(0, 2048, 2048, id="the-models-own"),
        pytest.param(0, 0, 0, id="unbounded"),
    ],
)
def test_the_share_beats_the_models_own_window(share: int, train_window: int, window: int) -> None:
    assert effective_window(share, train_window) == window


@pytest.mark.parametrize(
    ("width", "no_batch", "count"),
    [
        pytest.param(None, False, 4, id="as-many-as-slots"),
        pytest.param(2, False, 2, id="a-batch-size"),
        pytest.param(8, False, 8, id="a-larger-batch-size"),
        pytest.param(None, True, 1, id="no-batch"),
        pytest.param(2, True, 1, id="no-batch-beats-a-batch-size"),
    ],
)
def test_rows_that_run_together(width: int | None, no_batch: bool, count: int) -> None:
    scheduler = {"parallel": 4, "max_batch_size": width, "no_batch": no_batch}
    assert slot_count(scheduler) == count
