"""The scales of adapters: in force, of a request, and of the rows of a forward."""

import logging
from pathlib import Path

import pytest

from mlxcel.core.errors import BadField
from mlxcel.engine.lora import LoraScales
from mlxcel.weights.load import LoadedModel
from tests.weights.adapters import load_tiny, lora_options, pairs, write_mlx

import mlx.core as mx  # isort: skip

PROMPTS = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path = tmp_path_factory.mktemp("adapters")
    return [write_mlx(path / "0"), write_mlx(path / "1", pairs(seed=1))]


@pytest.fixture
def model(tiny: Path, folders: list[Path]) -> LoadedModel:
    return load_tiny(tiny, lora_options(*folders))


def forward(model: LoadedModel, prompts: list[list[int]]) -> mx.array:
    return model.network(mx.array(prompts))


def test_the_start_is_what_was_loaded(model: LoadedModel) -> None:
    scales = LoraScales(model.lora)
    assert scales.current == scales.of(None) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("wanted", "snapshot"),
    [
        pytest.param(((0, 0.5), (1, 2.0)), (0.5, 2.0), id="listed-are-set"),
        pytest.param(((1, 2.0),), (0.0, 2.0), id="unlisted-become-0"),
        pytest.param((), (0.0, 0.0), id="none-listed"),
        pytest.param(((7, 3.0), (-1, 3.0), (0, 1.0)), (1.0, 0.0), id="unknown-ids-are-ignored"),
    ],
)
def test_listed_scales(
    model: LoadedModel, wanted: tuple[tuple[int, float], ...], snapshot: tuple[float, ...]
) -> None:
    scales = LoraScales(model.lora)
    assert scales.of(wanted) == snapshot
    assert scales.current == (1.0, 1.0)
    scales.set(wanted)
    assert scales.current == snapshot


def test_a_change_touches_later_requests_only(model: LoadedModel) -> None:
    scales = LoraScales(model.lora)
    taken = scales.of(None)
    before = forward(model, PROMPTS[:1])
    scales.set(((0, 0.0),))
    later = scales.of(None)
    scales.use([later])
    assert not mx.allclose(forward(model, PROMPTS[:1]), before, atol=0.1)
    scales.use([taken])
    assert mx.array_equal(forward(model, PROMPTS[:1]), before)


def test_rows_of_one_batch_run_under_their_own_scales(model: LoadedModel) -> None:
    scales = LoraScales(model.lora)
    snapshots = [(0.0, 0.0), (1.0, 0.5), (-0.5, 0.5)]
    scales.use(snapshots)
    together = forward(model, PROMPTS)
    for row, snapshot in enumerate(snapshots):
        scales.use([snapshot])
        alone = forward(model, [PROMPTS[row]])[0]
        assert mx.allclose(together[row], alone, rtol=1e-3, atol=1e-3)


def test_mixed_rows_in_half_precision_stay_in_it(tiny: Path, folders: list[Path]) -> None:
    model = load_tiny(tiny, lora_options(*folders), "bfloat16")
    scales = LoraScales(model.lora)
    scales.use([(0.3, 1.0), (0.7, 1.0)])
    together = forward(model, PROMPTS[:2])
    assert together.dtype == mx.bfloat16
    scales.use([(0.3, 1.0)])
    alone = forward(model, PROMPTS[:1])
    error = mx.abs(together[:1].astype(mx.float32) - alone.astype(mx.float32)).mean()
    assert error < 0.05


def test_a_row_at_0_beside_others_says_what_the_base_says(tiny: Path, model: LoadedModel) -> None:
    scales = LoraScales(model.lora)
    scales.use([(0.0, 0.0), (1.0, 1.0)])
    together = forward(model, PROMPTS[:2])
    base = forward(load_tiny(tiny), PROMPTS[:1])
    assert mx.allclose(together[0], base[0], rtol=1e-3, atol=1e-3)
    assert not mx.allclose(together[1], forward(load_tiny(tiny), PROMPTS[1:2])[0], atol=0.1)


def test_equal_rows_need_no_arrays(model: LoadedModel) -> None:
    assert model.lora is not None
    scales = LoraScales(model.lora)
    scales.use([(0.5, 1.0), (0.5, 2.0)])
    first, second = model.lora.live.values
    assert first == 0.5
    assert isinstance(second, mx.array)
    assert second.shape == (2, 1, 1)
    assert second.flatten().tolist() == [1.0, 2.0]


def test_the_same_rows_keep_their_arrays(model: LoadedModel) -> None:
    assert model.lora is not None
    scales = LoraScales(model.lora)
    rows = [(0.0, 1.0), (1.0, 1.0)]
    scales.use(rows)
    kept = model.lora.live.values
    scales.use(list(rows))
    assert model.lora.live.values is kept
    rows.reverse()
    scales.use(rows)
    assert model.lora.live.values is not kept


def test_a_change_of_the_list_handed_over_is_seen(model: LoadedModel) -> None:
    assert model.lora is not None
    scales = LoraScales(model.lora)
    rows = [(0.0, 1.0), (1.0, 1.0)]
    scales.use(rows)
    rows[1] = (0.0, 1.0)
    scales.use(rows)
    assert model.lora.live.values == (0.0, 1.0)


def test_without_adapters_everything_is_nothing() -> None:
    scales = LoraScales(None)
    scales.set(((0, 1.0),))
    scales.check(((0, 1.0),))
    scales.use([(), ()])
    assert scales.current == scales.of(((0, 1.0),)) == scales.of(None) == ()


@pytest.mark.parametrize("scale", [float("nan"), float("inf")], ids=str)
def test_a_scale_that_is_no_finite_number_is_refused(model: LoadedModel, scale: float) -> None:
    with pytest.raises(BadField, match="lora: the scale of adapter 1 is not a finite number"):
        LoraScales(model.lora).check(((1, scale),))


def test_unfused_adapters_take_any_finite_scales(model: LoadedModel) -> None:
    LoraScales(model.lora).check(((0, -3.0), (9, 1.0)))
    LoraScales(model.lora).check(None)


class TestMerged:
    """Merged adapters cannot change."""

    @pytest.fixture
    def merged(self, tiny: Path, folders: list[Path]) -> LoadedModel:
        return load_tiny(tiny, lora_options(folders[0], fuse=True))

    @pytest.mark.parametrize("wanted", [None, ((0, 1.0),), ((0, 1.0), (5, 2.0))], ids=str)
    def test_the_scales_in_force_are_accepted(
        self, merged: LoadedModel, wanted: tuple[tuple[int, float], ...] | None
    ) -> None:
        LoraScales(merged.lora).check(wanted)

    @pytest.mark.parametrize("wanted", [(), ((0, 0.5),), ((1, 1.0),)], ids=str)
    def test_others_are_refused(
        self, merged: LoadedModel, wanted: tuple[tuple[int, float], ...]
    ) -> None:
        with pytest.raises(BadField, match=r"lora\.fuse") as refused:
            LoraScales(merged.lora).check(wanted)
        assert refused.value.param == "lora"
        assert refused.value.status == 400

    def test_a_change_leaves_them_and_is_logged(
        self, merged: LoadedModel, caplog: pytest.LogCaptureFixture
    ) -> None:
        scales = LoraScales(merged.lora)
        before = forward(merged, PROMPTS[:1])
        with caplog.at_level(logging.WARNING):
            scales.set(((0, 1.0),))
            assert not caplog.records
            scales.set(((0, 0.5),))
        assert "merged" in caplog.text
        assert scales.current == (1.0,)
        scales.use([scales.current])
        assert mx.array_equal(forward(merged, PROMPTS[:1]), before)
