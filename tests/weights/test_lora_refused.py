"""What is said of adapters that cannot be used."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlxcel.core.errors import StartupError
from mlxcel.weights.lora.install import Adapters, add_adapters
from mlxcel.weights.lora.read import read_adapter
from mlxcel.worker.precision import Backend
from tests.weights.adapters import Tensors, load_tiny, lora_options, pairs, write_mlx, write_peft

FIRST = "model.layers.0.self_attn.q_proj"
ALIEN = "model.layers.7.self_attn.q_proj"
NORM = "model.layers.0.input_layernorm"
TABLE = "model.embed_tokens"


def without(name: str) -> Tensors:
    return {n: t for n, t in pairs().items() if n != name}


@pytest.mark.parametrize(
    ("write", "said"),
    [
        pytest.param(
            lambda path: write_mlx(path, without(f"{FIRST}.lora_a")),
            [f"{FIRST}: has no lora_a"],
            id="no-a",
        ),
        pytest.param(
            lambda path: write_peft(path, without(f"{FIRST}.lora_b")),
            [f"{FIRST}: has no lora_b"],
            id="no-b",
        ),
        pytest.param(
            lambda path: write_mlx(path, pairs() | {f"{FIRST}.m": np.ones(64, np.float32)}),
            [f"{FIRST}.m: is no lora_a or lora_b"],
            id="another-tensor",
        ),
        pytest.param(
            lambda path: write_mlx(
                path, pairs() | {f"{FIRST}.modules_to_save": np.ones((64, 64), np.float32)}
            ),
            ["modules_to_save: is no lora_a or lora_b"],
            id="a-saved-module",
        ),
        pytest.param(
            lambda path: write_mlx(path, pairs(layers={ALIEN: (64, 64), FIRST: (64, 64)})),
            [f"{ALIEN}: the model has no such layer"],
            id="no-such-layer",
        ),
        pytest.param(
            lambda path: write_mlx(path, pairs(layers={FIRST: (64, 32)})),
            [f"{FIRST}: its shapes are (64, 4) and (4, 32), the layer needs (64, 4), (4, 64)"],
            id="another-shape",
        ),
        pytest.param(
            lambda path: write_mlx(
                path, pairs() | {f"{FIRST}.lora_b": np.ones((5, 64), np.float32)}
            ),
            [f"{FIRST}: its shapes are"],
            id="ranks-that-differ",
        ),
        pytest.param(
            lambda path: write_mlx(path, pairs() | {f"{FIRST}.lora_b": np.ones(4, np.float32)}),
            [f"{FIRST}.lora_b: has the shape (4,)"],
            id="a-vector",
        ),
        pytest.param(
            lambda path: write_peft(path, r=8),
            [f"{FIRST}: is of rank 4, but adapter_config.json says 8"],
            id="another-rank",
        ),
        pytest.param(
            lambda path: write_mlx(path, pairs(layers={NORM: (64, 64)})),
            [f"{NORM}: the model has a RMSNorm there"],
            id="no-linear-layer",
        ),
        pytest.param(
            lambda path: write_mlx(path, pairs(layers={TABLE: (264, 64)})),
            [f"{TABLE}: an adapter of a Embedding must be merged: set lora.fuse"],
            id="an-embedding-unfused",
        ),
        pytest.param(lambda path: write_mlx(path, {}), ["holds no tensors"], id="empty"),
        pytest.param(
            lambda path: write_mlx(path, fine_tune_type="dora"), ["is no LoRA", "dora"], id="dora"
        ),
        pytest.param(
            lambda path: write_peft(path, use_dora=True), ["DoRA (use_dora)"], id="dora-of-peft"
        ),
        pytest.param(lambda path: write_mlx(path, fine_tune_type="full"), ["'full'"], id="full"),
        pytest.param(lambda path: write_peft(path, peft_type="IA3"), ["'IA3'"], id="ia3"),
        pytest.param(
            lambda path: write_mlx(path, lora_parameters={"rank": 4, "scale": float("nan")}),
            ["scale must be a finite number, not nan"],
            id="a-factor-that-is-no-number",
        ),
        pytest.param(
            lambda path: write_mlx(path, lora_parameters={"rank": 4, "alpha": 16}),
            ["scale must be a finite number, not None"],
            id="no-factor",
        ),
        pytest.param(
            lambda path: write_peft(path, lora_alpha="16"),
            ["lora_alpha must be a finite number, not '16'"],
            id="alpha-as-text",
        ),
        pytest.param(lambda path: path, ["there is no adapter folder"], id="missing-folder"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    tiny: Path, tmp_path: Path, write: Callable[[Path], Path], said: list[str]
) -> None:
    folder = write(tmp_path / "a")
    with pytest.raises(StartupError) as refused:
        load_tiny(tiny, lora_options(folder))
    assert all(text in refused.value.message for text in [*said, str(folder)])


def test_every_misfit_is_named_up_to_eight(tiny: Path, tmp_path: Path) -> None:
    layers = {f"model.layers.{n}.nowhere": (64, 64) for n in range(10, 20)}
    with pytest.raises(StartupError) as refused:
        load_tiny(tiny, lora_options(write_mlx(tmp_path / "a", pairs(layers=layers))))
    assert refused.value.message.count("no such layer") == 8
    assert "and 2 more" in refused.value.message


@pytest.mark.parametrize("file", ["adapter_config.json", "adapters.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    folder = write_mlx(tmp_path / "a")
    (folder / file).unlink()
    with pytest.raises(StartupError, match=file):
        read_adapter(folder)


@pytest.mark.parametrize("file", ["adapter_config.json", "adapters.safetensors"])
def test_a_broken_file_is_named(tmp_path: Path, file: str) -> None:
    folder = write_mlx(tmp_path / "a")
    (folder / file).write_bytes(b"[]")
    with pytest.raises(StartupError, match=file):
        read_adapter(folder)


def test_a_configuration_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    folder = write_mlx(tmp_path / "a")
    (folder / "adapter_config.json").write_text('{"rank": 4}')
    with pytest.raises(StartupError, match="of no known kind"):
        read_adapter(folder)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), "1", None, True], ids=str)
def test_a_scale_that_is_no_finite_number_is_refused(
    tiny: Path, tmp_path: Path, scale: object
) -> None:
    with pytest.raises(StartupError, match="must be a finite number"):
        load_tiny(tiny, lora_options(write_mlx(tmp_path / "a"), scales=[scale]))


@pytest.mark.parametrize(
    ("family", "backend", "fuse", "is_refused"),
    [
        pytest.param("nemotron_h", Backend.METAL, False, True, id="nemotron-h-on-metal"),
        pytest.param("nemotron_h", Backend.METAL, True, False, id="fused"),
        pytest.param("nemotron_h", Backend.CUDA, False, False, id="elsewhere"),
        pytest.param("llama", Backend.METAL, False, False, id="another-family"),
    ],
)
def test_nemotron_h_on_metal_takes_merged_adapters_only(
    tiny: Path, tmp_path: Path, family: str, backend: Backend, fuse: bool, is_refused: bool
) -> None:
    options = lora_options(write_mlx(tmp_path / "a"), fuse=fuse)

    def add() -> Adapters | None:
        return add_adapters(load_tiny(tiny).network, options, family=family, backend=backend)

    if is_refused:
        with pytest.raises(StartupError, match=r"lora\.fuse"):
            add()
    else:
        assert add() is not None
