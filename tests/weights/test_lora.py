"""Adapters on the tiny checkpoint: what they change."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlxcel.weights.load import LoadedModel
from mlxcel.weights.lora.install import add_adapters
from mlxcel.weights.lora.linear import LiveScales, LoraLinear, Part
from mlxcel.weights.lora.read import read_adapter
from mlxcel.worker.precision import Backend
from tests.weights.adapters import (
    LAYERS,
    RANK,
    SCALE,
    Tensors,
    load_tiny,
    lora_options,
    pairs,
    write_mlx,
    write_peft,
)

import mlx.core as mx  # isort: skip
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import quantize_model, save_config, save_model

PROMPT = [[72, 101, 108, 108, 111]]


def logits(model: LoadedModel | nn.Module) -> mx.array:
    network = model.network if isinstance(model, LoadedModel) else model
    return network(mx.array(PROMPT))[0].astype(mx.float32)


def is_close(one: mx.array, other: mx.array, atol: float = 1e-3) -> bool:
    return bool(mx.allclose(one, other, rtol=1e-3, atol=atol))


@pytest.fixture(scope="module")
def base(tiny: Path) -> mx.array:
    return logits(load_tiny(tiny))


@pytest.fixture(scope="module")
def quantised(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantised") / "tiny-8bit"
    shutil.copytree(tiny, folder)
    model = load_tiny(tiny)
    network, config = quantize_model(
        model.network, dict(model.config), group_size=32, bits=8, mode="affine"
    )
    save_model(folder, network)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def by_hand(tiny: Path, tensors: Tensors, scale: float = 1.0) -> mx.array:
    """The product's formula on the weights themselves, in NumPy."""
    model = load_tiny(tiny)
    layers = dict(model.network.named_modules())
    for name in LAYERS:
        delta = SCALE * tensors[f"{name}.lora_a"] @ tensors[f"{name}.lora_b"]
        layers[name].weight = layers[name].weight + mx.array(scale * delta.T)
    return logits(model)


def test_no_adapters_leave_the_network_alone(tiny: Path, base: mx.array) -> None:
    model = load_tiny(tiny, {"adapters": [], "fuse": False, "init_without_apply": False})
    assert model.lora is None
    assert mx.array_equal(logits(model), base)


def test_an_adapter_adds_its_low_rank_part(tiny: Path, tmp_path: Path, base: mx.array) -> None:
    model = load_tiny(tiny, lora_options(write_mlx(tmp_path / "a"), scales=[0.5]))
    assert is_close(logits(model), by_hand(tiny, pairs(), 0.5))
    assert not is_close(logits(model), base, atol=0.1)


@pytest.mark.parametrize(
    "options", [{"scales": [0]}, {"off": True}], ids=["scale-0", "not-applied"]
)
def test_scale_0_is_the_base_model(
    tiny: Path, tmp_path: Path, base: mx.array, options: dict[str, Any]
) -> None:
    model = load_tiny(tiny, lora_options(write_mlx(tmp_path / "a"), **options))
    assert mx.array_equal(logits(model), base)
    assert model.lora is not None
    assert model.lora.scales == (0.0,)


def test_unfused_at_1_is_fused(tiny: Path, tmp_path: Path) -> None:
    folder = write_mlx(tmp_path / "a")
    fused = load_tiny(tiny, lora_options(folder, fuse=True))
    assert is_close(logits(load_tiny(tiny, lora_options(folder))), logits(fused))
    assert not any(isinstance(m, LoraLinear) for m in fused.network.modules())


def test_unfused_at_1_is_fused_in_packed_weights(quantised: Path, tmp_path: Path) -> None:
    folder = write_mlx(tmp_path / "a")
    fused = load_tiny(quantised, lora_options(folder, fuse=True), "as-stored")
    unfused = logits(load_tiny(quantised, lora_options(folder), "as-stored"))
    plain = logits(load_tiny(quantised, None, "as-stored"))
    layers = dict(fused.network.named_modules())
    assert all(isinstance(layers[name], nn.QuantizedLinear) for name in LAYERS)
    error = mx.abs(logits(fused) - unfused).mean()
    assert error < mx.abs(unfused - plain).mean() / 10


@pytest.mark.parametrize("fuse", [False, True], ids=["unfused", "fused"])
def test_two_adapters_add_up(tiny: Path, tmp_path: Path, fuse: bool) -> None:
    one, two = write_mlx(tmp_path / "1"), write_mlx(tmp_path / "2", pairs(seed=1))
    both = load_tiny(tiny, lora_options(one, two, scales=[1.0, -0.5], fuse=fuse))
    summed = {
        name: np.concatenate([tensor, other], axis=1 if name.endswith("a") else 0)
        for (name, tensor), other in zip(
            pairs().items(),
            (t * (1.0 if n.endswith("a") else -0.5) for n, t in pairs(seed=1).items()),
            strict=True,
        )
    }
    assert is_close(logits(both), by_hand(tiny, summed))


def test_an_adapter_of_other_layers_costs_its_layers_only(tiny: Path, tmp_path: Path) -> None:
    name = "lm_head"
    tensors = pairs(layers={name: (64, 264)})
    model = load_tiny(tiny, lora_options(write_mlx(tmp_path / "a", tensors)))
    wrapped = [n for n, m in model.network.named_modules() if isinstance(m, LoraLinear)]
    assert wrapped == [name]


def test_peft_lays_the_same_adapter_out_the_other_way(tiny: Path, tmp_path: Path) -> None:
    mlx = load_tiny(tiny, lora_options(write_mlx(tmp_path / "mlx")))
    peft = load_tiny(tiny, lora_options(write_peft(tmp_path / "peft")))
    assert mx.array_equal(logits(mlx), logits(peft))


@pytest.mark.parametrize(
    ("config", "factor"),
    [
        pytest.param({}, SCALE, id="alpha-over-rank"),
        pytest.param({"lora_alpha": 16}, 4.0, id="another-alpha"),
        pytest.param({"lora_alpha": 16, "use_rslora": True}, 8.0, id="rank-stabilised"),
        pytest.param({"alpha_pattern": {"q_proj": 1}}, 0.25, id="a-pattern"),
        pytest.param({"alpha_pattern": {"k_proj": 1}}, SCALE, id="a-pattern-of-others"),
    ],
)
def test_factors_of_peft(tmp_path: Path, config: dict[str, Any], factor: float) -> None:
    parts = read_adapter(write_peft(tmp_path / "a", **config))
    assert {p.layer: p.factor for p in parts}["model.layers.0.self_attn.q_proj"] == factor


def test_an_adapter_that_mlx_lm_has_trained(tiny: Path, tmp_path: Path) -> None:
    """As `mlx_lm.lora` writes it: its own layers, its own file, its own configuration."""
    folder = tmp_path / "trained"
    folder.mkdir()
    model = load_tiny(tiny)
    parameters = {"rank": RANK, "scale": 20.0, "dropout": 0.0}
    model.network.freeze()
    linear_to_lora_layers(model.network, 1, parameters)
    trained = dict(tree_flatten(model.network.trainable_parameters()))
    assert len(trained) == 14
    trained = {
        name: mx.random.normal(t.shape, key=mx.random.key(n)) / 40
        for n, (name, t) in enumerate(trained.items())
    }
    mx.save_safetensors(str(folder / "adapters.safetensors"), trained)
    arguments = {
        "fine_tune_type": "lora",
        "num_layers": 1,
        "lora_parameters": parameters,
        "model": "tiny",
        "optimizer": "adam",
        "iters": 1000,
    }
    save_config(arguments, folder / "adapter_config.json")
    theirs = load_adapters(load_tiny(tiny).network, str(folder))
    assert is_close(logits(load_tiny(tiny, lora_options(folder))), logits(theirs))


def test_adapters_are_held_as_activations_are(quantised: Path, tmp_path: Path) -> None:
    folder = write_mlx(tmp_path / "a")
    for precision in ("bfloat16", "float16"):
        model = load_tiny(quantised, lora_options(folder), precision)
        layer = dict(model.network.named_modules())["model.layers.0.self_attn.q_proj"]
        assert isinstance(layer, LoraLinear)
        assert {a.dtype for a in (*layer.down, *layer.up)} == {getattr(mx, precision)}
        assert model.network(mx.array(PROMPT)).dtype == getattr(mx, precision)


def test_weights_bytes_count_adapters(tiny: Path, tmp_path: Path) -> None:
    tensors = pairs()
    more = load_tiny(tiny, lora_options(write_mlx(tmp_path / "a"))).weights_bytes
    assert more - load_tiny(tiny).weights_bytes == sum(t.nbytes for t in tensors.values())


class Odd(nn.Module):
    """The layers that only merged adapters may change."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.experts = SwitchLinear(8, 6, 3)


def test_tables_and_experts_take_merged_adapters(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = {
        "table.lora_a": (10, 4),
        "table.lora_b": (4, 8),
        "experts.lora_a": (3, 4, 8),
        "experts.lora_b": (3, 6, 4),
    }
    tensors = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    network = Odd()
    table, experts = network.table.weight, network.experts.weight
    options = lora_options(write_mlx(tmp_path / "a", tensors), scales=[0.5], fuse=True)
    add_adapters(network, options, family="odd", backend=Backend.CPU)
    half = 0.5 * SCALE
    a, b = tensors["table.lora_a"], tensors["table.lora_b"]
    assert is_close(network.table.weight, table + half * mx.array(a @ b))
    a, b = tensors["experts.lora_a"], tensors["experts.lora_b"]
    assert is_close(network.experts.weight, experts + half * mx.array(b @ a))


def part(inner: int = 8) -> Part:
    keys = mx.random.split(mx.random.key(0), 2)
    return Part(
        adapter=0,
        down=mx.random.normal((inner, 2), key=keys[0]),
        up=mx.random.normal((2, 6), key=keys[1]),
    )


def lora_linear(scale: float | mx.array, low_rank: Part | None = None) -> LoraLinear:
    parts = [part() if low_rank is None else low_rank]
    return LoraLinear(nn.Linear(8, 6), parts, LiveScales((scale,)))


def test_at_scale_0_the_low_rank_part_is_not_computed() -> None:
    does_not_fit = part(inner=3)
    assert lora_linear(0.0, does_not_fit)(mx.zeros((1, 8))).shape == (1, 6)


def test_a_layer_keeps_its_type_beside_adapters_of_another() -> None:
    """A model may hold a few layers in another type than most of its weights."""
    layer = lora_linear(1.0)
    layer.linear.set_dtype(mx.bfloat16)
    assert layer(mx.zeros((1, 8), mx.bfloat16)).dtype == mx.bfloat16


def test_rows_may_lie_flat() -> None:
    """Some models fold rows and positions into one axis before a linear layer."""
    scales = mx.array([0.0, 1.0]).reshape(2, 1, 1)
    x = mx.random.normal((2, 3, 8))
    layer = lora_linear(scales)
    assert mx.allclose(layer(x.reshape(6, 8)), layer(x).reshape(6, 6), atol=1e-5)


def test_scales_of_other_rows_are_an_error() -> None:
    with pytest.raises(ValueError, match="scales of 2 rows do not fit"):
        lora_linear(mx.array([0.0, 1.0]).reshape(2, 1, 1))(mx.zeros((3, 1, 8)))
