"""Loading checkpoints: what arrives in memory, and what is said when it cannot."""

import json
import shutil
from pathlib import Path

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.weights.load import LoadedModel, load_model

import mlx.core as mx  # isort: skip
from mlx.utils import tree_flatten
from mlx_lm.utils import quantize_model, save_model

OPTIONS = {
    "precision": "auto",
    "batch": 4,
    "device": "auto",
    "train_window": 512,
    "fuse_projections": "off",
    "weight_materialization": "eager",
}


def load(folder: Path, **options: object) -> LoadedModel:
    defaults = OPTIONS | {"path": str(folder)}
    return load_model(defaults | options, lambda step, fraction: None)


@pytest.fixture(scope="module")
def quantised(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantised") / "tiny-4bit"
    shutil.copytree(tiny, folder)
    model = load(tiny)
    network, config = quantize_model(
        model.network, dict(model.config), group_size=32, bits=4, mode="affine"
    )
    save_model(folder, network)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def dtypes(model: LoadedModel) -> set[mx.Dtype]:
    return {array.dtype for _, array in tree_flatten(model.network.parameters())}


@pytest.mark.skipif(
    mx.default_device() != mx.Device(mx.cpu), reason="dense float32 is the choice for CPUs alone"
)
def test_quantised_checkpoint_is_dense_on_cpu(quantised: Path) -> None:
    model = load(quantised)
    assert dtypes(model) == {mx.float32}
    assert "cpu" in model.precision


def test_as_stored_keeps_packed_weights(quantised: Path) -> None:
    model = load(quantised, precision="as-stored")
    assert mx.uint32 in dtypes(model)
    assert model.weights_bytes < load(quantised, precision="float32").weights_bytes / 3


def test_progress_rises_to_the_end(tiny: Path) -> None:
    seen: list[tuple[str, float | None]] = []
    options = OPTIONS | {"path": str(tiny)}
    load_model(options, lambda step, fraction: seen.append((step, fraction)))
    fractions = [fraction for _, fraction in seen if fraction is not None]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_weights_that_do_not_fit_the_config_are_refused(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(StartupError, match="cannot be loaded"):
        load(folder)


@pytest.mark.skipif(mx.is_available(mx.Device(mx.gpu)), reason="there is a GPU here")
def test_missing_device_is_named(tiny: Path) -> None:
    with pytest.raises(StartupError, match=r"engine\.device is gpu"):
        load(tiny, device="gpu")


@pytest.mark.parametrize("when", ["eager", "lazy"])
def test_lazy_weights_are_not_read_before_they_are_used(tiny: Path, when: str) -> None:
    steps: list[str] = []
    options = OPTIONS | {"path": str(tiny), "weight_materialization": when}
    model = load_model(options, lambda step, fraction: steps.append(step))
    assert ("loading weights" in steps) == (when == "eager")
    assert model.network(mx.array([[1]])).shape == (1, 1, model.vocab_size)
