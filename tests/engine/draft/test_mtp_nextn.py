"""Heads that are one layer more, against mlx-lm's own layer over the whole text."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model

from mlxcel.core.errors import StartupError
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.tensors import quantise
from tests.engine.draft.mtp_parts import heads, target
from tests.tiny.mtp_nextn import (
    DEEPSEEK_V3,
    GLM4_MOE,
    GLM4_MOE_LITE,
    LAYERS,
    Weights,
    as_trained,
    build_head,
    build_target,
    grown,
    head_around,
    layer_of,
)

CONFIGS = pytest.mark.parametrize(
    "config", [GLM4_MOE_LITE, GLM4_MOE, DEEPSEEK_V3], ids=["glm-lite", "glm", "deepseek"]
)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_compiled() -> Iterator[None]:
    """A C++ compiler would take longer than all of this, where it has not yet done its work."""
    mx.disable_compile()
    yield
    mx.enable_compile()


@CONFIGS
@pytest.mark.parametrize("layout", ["folder", "checkpoint"])
def test_both_layouts_give_what_was_trained(
    tmp_path: Path, config: dict[str, Any], layout: str
) -> None:
    model = target(build_target(tmp_path / "target", config))
    if layout == "folder":
        found = heads(model, build_head(tmp_path / "head", config))
    else:
        # mlx-lm itself knows the layer of DeepSeek V3 by its number alone, 61.
        whole = build_target(tmp_path / "whole", config, as_trained(config))
        found = heads(replace(model, folder=whole))
    weights = dict(tree_flatten(found.network.parameters()))
    block = {f"mtp_block.{name}": array for name, array in layer_of(grown(config)).items()}
    expected = head_around(config) | block
    assert weights.keys() == expected.keys()
    for name, array in expected.items():
        assert mx.allclose(weights[name], array, rtol=0, atol=1e-6), name
    assert found.most == 3


@CONFIGS
@pytest.mark.parametrize("tap", ["pre", "post"])
def test_proposals_are_those_of_the_layer_over_all(
    tmp_path: Path, config: dict[str, Any], tap: str
) -> None:
    model = target(build_target(tmp_path / "target", config))
    found = heads(model, build_head(tmp_path / "head", config), glm_hidden_tap=tap)
    assert tuple(found.taps) == ((LAYERS - 1,) if tap == "pre" else ())
    key, size = mx.random.key(3), config["hidden_size"]
    tokens = [int(token) for token in mx.random.randint(0, 256, (20,), key=key)]
    rows = mx.random.normal((19, size), key=key)
    drafter = found.make(SamplingParams(temperature=0))
    drafter.hear(tokens)
    drafter.look(rows[:12])
    drafter.look(rows[12:])
    expected = plainly(config, tap, tokens[1:], rows, 3)
    assert drafter.propose(3) == expected
    assert drafter.propose(3) == expected
    around, network = head_around(config), found.network
    embedded = around["embed_tokens.weight"][mx.array(tokens[1:])]
    states = whole(grown(config).model.layers[LAYERS], around, embedded, rows)
    if tap == "post":
        states = norm(states, around["shared_head_norm.weight"])
    made = network(embedded[None], rows[None], network.make_cache())
    assert mx.allclose(made[0], states, rtol=0, atol=1e-4)


def plainly(
    config: dict[str, Any], tap: str, tokens: list[int], rows: mx.array, count: int
) -> list[int]:
    around = head_around(config)
    layer = grown(config).model.layers[LAYERS]
    drawn: list[int] = []
    for _ in range(count):
        embedded = around["embed_tokens.weight"][mx.array(tokens + drawn)]
        made = whole(layer, around, embedded, rows)
        normed = norm(made, around["shared_head_norm.weight"])
        drawn.append(int(mx.argmax(around["lm_head.weight"] @ normed[-1])))
        rows = mx.concatenate([rows, (made if tap == "pre" else normed)[-1:]])
    return drawn


def whole(layer: nn.Module, around: Weights, embedded: mx.array, rows: mx.array) -> mx.array:
    parts = [norm(embedded, around["enorm.weight"]), norm(rows, around["hnorm.weight"])]
    x = mx.concatenate(parts, axis=1) @ around["eh_proj.weight"].T
    places = mx.arange(len(x))
    return layer(x[None], places[:, None] >= places, None)[0]


def norm(x: mx.array, weight: mx.array) -> mx.array:
    return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight


def test_what_it_has_not_of_its_own_is_the_target_s(tmp_path: Path) -> None:
    """As with mixtures that share the embedding and the output layer."""
    stored = as_trained(GLM4_MOE)
    shared = {n: a for n, a in stored.items() if "embed_tokens" not in n and "head.head" not in n}
    model = target(build_target(tmp_path / "target", GLM4_MOE, shared))
    found = heads(model)
    drafter = found.make(SamplingParams(temperature=0))
    drafter.hear([1, 2])
    drafter.look(mx.ones((1, GLM4_MOE["hidden_size"])))
    around = head_around(GLM4_MOE)
    inner = model.network.model
    layer = grown(GLM4_MOE).model.layers[LAYERS]
    made = whole(layer, around, inner.embed_tokens(mx.array([2])), mx.ones((1, 64)))
    logits = model.network.lm_head(norm(made, around["shared_head_norm.weight"]))
    assert drafter.propose(1) == [int(mx.argmax(logits))]


def test_its_router_is_kept_exact(tmp_path: Path) -> None:
    folder = build_target(tmp_path / "target", GLM4_MOE_LITE, as_trained(GLM4_MOE_LITE))
    model = target(folder, precision="bfloat16")
    weights = dict(tree_flatten(heads(model).network.parameters()))
    assert weights["mtp_block.mlp.gate.e_score_correction_bias"].dtype == mx.float32
    assert weights["eh_proj.weight"].dtype == mx.bfloat16


def test_a_target_that_was_made_dense_has_dense_heads(tmp_path: Path) -> None:
    """Though mlx-lm leaves the small matrices of latent attention quantised."""
    model = target(build_target(tmp_path / "target", GLM4_MOE_LITE))
    packed = {"group_size": 32, "bits": 8}
    quantise(model.network, packed)
    dequantize_model(model.network)
    assert any(hasattr(module, "bits") for _, module in model.network.named_modules())
    model = replace(model, config={**model.config, "quantization": packed})
    made = heads(model, build_head(tmp_path / "head", GLM4_MOE_LITE)).network
    assert not any(hasattr(module, "bits") for _, module in made.named_modules())


def test_a_tensor_it_does_not_know_is_refused(tmp_path: Path) -> None:
    stray = {f"model.layers.{LAYERS}.self_attn.stray.weight": mx.zeros(1)}
    folder = build_target(tmp_path / "target", GLM4_MOE, as_trained(GLM4_MOE) | stray)
    with pytest.raises(StartupError, match=r"no MTP head .*: mtp_block\.self_attn\.stray\.weight"):
        heads(target(folder))
