import pytest

from mlxcel.core.window import effective_window, slot_share


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
