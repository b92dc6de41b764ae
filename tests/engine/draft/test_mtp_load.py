"""Heads in a folder of their own and in the target's checkpoint: what fits is what was trained."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from mlxcel.core.errors import StartupError
from mlxcel.weights.load import LoadedModel
from tests.engine.draft.mtp_parts import heads, target
from tests.tiny.families import network_of
from tests.tiny.mtp import (
    HIDDEN,
    TEXT,
    Weights,
    as_stored,
    build_head,
    build_target,
    build_target_with_heads,
    head_weights,
)

PACKED = {"group_size": 32, "bits": 8, "mode": "affine"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return target(build_target(tmp_path_factory.mktemp("mtp") / "target"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_target_with_heads(tmp_path_factory.mktemp("mtp") / "whole")


def weights_of(network: nn.Module) -> Weights:
    return dict(tree_flatten(network.parameters()))


def assert_are(network: nn.Module, expected: Weights, within: float = 1e-6) -> None:
    found = weights_of(network)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert mx.allclose(found[name], array, rtol=0, atol=within), name


@pytest.mark.parametrize("prefix", ["", "mtp.", "language_model.mtp."])
def test_a_folder_gives_what_was_trained(model: LoadedModel, tmp_path: Path, prefix: str) -> None:
    found = heads(model, build_head(tmp_path / "tiny-mtp", prefix=prefix))
    assert_are(found.network, head_weights())
    assert (found.kind, found.name, found.width) == ("mtp", "tiny-mtp", HIDDEN)
    assert (tuple(found.taps), found.project) == ((), None)


def test_heads_in_the_target_are_found_by_its_index(whole: Path) -> None:
    model = target(whole)
    found = heads(model)
    assert_are(found.network, head_weights())
    assert (found.folder, found.most) == (whole, 2)


def test_the_target_around_them_is_the_same(whole: Path, model: LoadedModel) -> None:
    """What the fixture promises: with the heads it is read as without."""
    assert_are(target(whole).network, weights_of(model.network))


@pytest.mark.parametrize("index", [True, False], ids=["not-in-the-index", "no-index"])
def test_heads_in_a_file_of_their_own_are_found(
    model: LoadedModel, tmp_path: Path, index: bool
) -> None:
    folder = build_target(tmp_path / "target")
    mx.save_safetensors(str(folder / "mtp.safetensors"), as_stored(head_weights(), "mtp."))
    if index:
        told = {"weight_map": dict.fromkeys(weights_of(model.network), "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(told))
    assert_are(heads(replace(model, folder=folder)).network, head_weights())


def test_none_in_the_target_is_told(model: LoadedModel) -> None:
    with pytest.raises(StartupError, match=r"has no MTP heads .* model_type qwen3_5_mtp"):
        heads(model)


def test_a_target_of_another_kind_is_told(model: LoadedModel, tmp_path: Path) -> None:
    llama = replace(model, config={"model_type": "llama"})
    with pytest.raises(StartupError, match=r"the MTP heads of llama cannot be read; .*qwen3_5"):
        heads(llama)
    with pytest.raises(StartupError, match=r"drafts for qwen3_5, .* not for llama"):
        heads(llama, build_head(tmp_path / "head"))


def test_a_mixture_of_experts_is_refused(model: LoadedModel, tmp_path: Path) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    folder = build_head(tmp_path / "head", text_config=TEXT | experts)
    with pytest.raises(StartupError, match=r"mixture of experts .*num_experts=4"):
        heads(model, folder)
    text = TEXT | experts | {"shared_expert_intermediate_size": 32}
    mixed = {"model_type": "qwen3_5_moe", "text_config": text}
    target = replace(model, network=network_of(mixed), config=mixed)
    with pytest.raises(StartupError, match=r"experts .*qwen3_5_moe with num_experts=4"):
        heads(target, build_head(tmp_path / "other"))


CONFIGS = [
    pytest.param({"model_type": "gemma4_assistant"}, "gemma4_assistant, which is no", id="kind"),
    pytest.param({"text_config": TEXT | {"hidden_size": 32}}, "hidden_size 32, .* 64", id="hidden"),
    pytest.param({"text_config": TEXT | {"vocab_size": 99}}, "vocab_size 99, .* 264", id="words"),
    pytest.param({"block_size": 1}, "block_size is 1: at least 2", id="width"),
]


@pytest.mark.parametrize(("config", "message"), CONFIGS)
def test_a_config_that_does_not_fit_is_refused(
    model: LoadedModel, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(StartupError, match=message):
        heads(model, build_head(tmp_path / "head", **config))


FC = "fc.weight"
TENSORS = [
    pytest.param(
        {"layers.x.weight": mx.zeros(1)}, r"tensors that no .*: layers\.x", id="no-number"
    ),
    pytest.param({"fc.bias": mx.zeros(HIDDEN)}, "tensors that no .*: fc.bias", id="unknown"),
    pytest.param({FC: None}, "without: fc.weight", id="missing"),
    pytest.param({FC: mx.zeros((HIDDEN, HIDDEN))}, r"fc.weight is \(64, 64\)", id="shape"),
]


@pytest.mark.parametrize(("change", "message"), TENSORS)
def test_tensors_that_do_not_fit_are_refused(
    model: LoadedModel, tmp_path: Path, change: dict[str, mx.array | None], message: str
) -> None:
    weights = {n: array for n, array in (head_weights() | change).items() if array is not None}
    with pytest.raises(StartupError, match=message):
        heads(model, build_head(tmp_path / "head", weights=weights))


def test_a_folder_without_anything_is_told(model: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"has no config\.json"):
        heads(model, tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_5_mtp"}')
    with pytest.raises(StartupError, match="has no safetensors"):
        heads(model, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(StartupError, match=r"model\.safetensors cannot be read"):
        heads(model, tmp_path)


def test_two_layers_are_read_as_such(model: LoadedModel, tmp_path: Path) -> None:
    weights = head_weights(layers=2)
    found = heads(model, build_head(tmp_path / "head", weights=weights))
    assert_are(found.network, weights)


WIDTHS = [
    pytest.param(None, {}, 2, id="of-the-family"),
    pytest.param(None, {"block_size": 5}, 4, id="of-the-file"),
    pytest.param(2, {"block_size": 5}, 1, id="asked-for"),
]


@pytest.mark.parametrize(("asked", "config", "most"), WIDTHS)
def test_how_many_are_proposed(
    model: LoadedModel, tmp_path: Path, asked: int | None, config: dict[str, Any], most: int
) -> None:
    assert heads(model, build_head(tmp_path / "h", **config), block_size=asked).most == most


@pytest.fixture(scope="module")
def packed_head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quantised but for its norms, as `mlx_lm.convert` leaves them."""
    weights: Weights = {}
    for name, array in head_weights().items():
        if array.ndim == 1:
            weights[name] = array
            continue
        parts = mx.quantize(array, group_size=32, bits=8)
        kinds = ("weight", "scales", "biases")
        weights |= {name.replace("weight", k): part for k, part in zip(kinds, parts, strict=True)}
    folder = tmp_path_factory.mktemp("mtp") / "packed"
    return build_head(folder, weights=weights, quantization=PACKED)


@pytest.fixture(scope="module")
def packed_model(tmp_path_factory: pytest.TempPathFactory, model: LoadedModel) -> LoadedModel:
    network = target(model.folder).network
    nn.quantize(network, 32, 8)
    return replace(model, network=network, config={**model.config, "quantization": PACKED})


def is_packed(network: nn.Module) -> bool:
    return "fc.scales" in weights_of(network)


def test_a_quantised_head_beside_a_dense_target_is_dense(
    model: LoadedModel, packed_head: Path
) -> None:
    found = heads(model, packed_head)
    assert not is_packed(found.network)
    assert_are(found.network, head_weights(), within=0.02)


def test_heads_are_quantised_as_their_target_is(
    packed_model: LoadedModel, packed_head: Path, tmp_path: Path
) -> None:
    stored = weights_of(heads(packed_model, packed_head).network)
    dense = build_head(tmp_path / "dense")
    made = weights_of(heads(packed_model, dense).network)
    assert stored.keys() == made.keys()
    for name, array in stored.items():
        assert mx.array_equal(made[name], array), name
    assert not is_packed(heads(packed_model, dense, quantize=False).network)
    assert not is_packed(heads(packed_model, packed_head, precision="float32").network)
    assert is_packed(heads(packed_model, packed_head, precision="as-stored").network)
    assert not is_packed(heads(packed_model, dense, precision="as-stored").network)


def test_heads_are_held_as_their_target_is(model: LoadedModel, tmp_path: Path) -> None:
    half = replace(model, network=target(model.folder, precision="bfloat16").network)
    folder = build_head(tmp_path / "head")
    dtypes = {
        precision: weights_of(heads(half, folder, precision=precision).network)[FC].dtype
        for precision in ("auto", "as-stored", "float16")
    }
    expected = {"auto": mx.bfloat16, "as-stored": mx.float32, "float16": mx.float16}
    assert dtypes == expected
