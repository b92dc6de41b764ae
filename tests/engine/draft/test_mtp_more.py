"""Heads of further families inside their targets' checkpoints, against mlx-lm's own layer over the
whole text."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.target import target_of
from mlxcel.engine.draft.tensors import quantise
from tests.engine.draft.mtp_parts import heads, target
from tests.tiny import mtp_more as tiny
from tests.tiny.mtp_more import MIMO, QWEN3_NEXT, Weights

States = Callable[[mx.array, mx.array], mx.array]


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_compiled() -> Iterator[None]:
    """A C++ compiler would take longer than all of this, where it has not yet done its work."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def norm(x: mx.array, weight: mx.array) -> mx.array:
    return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight


def over_layer(config: dict[str, Any], x: mx.array) -> mx.array:
    places = mx.arange(len(x))
    made: mx.array = tiny.grown(config).model.layers[-1](x[None], places[:, None] >= places, None)
    return made[0]


def states_next(embedded: mx.array, hidden: mx.array) -> mx.array:
    by = tiny.around_next()
    e = norm(embedded, by["pre_fc_norm_embedding.weight"])
    h = norm(hidden, by["pre_fc_norm_hidden.weight"])
    x = mx.concatenate([e, h], axis=1) @ by["fc.weight"].T
    return norm(over_layer(QWEN3_NEXT, x), by["norm.weight"])


def states_mimo(embedded: mx.array, hidden: mx.array) -> mx.array:
    by = tiny.around_mimo()
    e = norm(embedded, by["token_layernorm.weight"])
    h = norm(hidden, by["hidden_layernorm.weight"])
    x = mx.concatenate([h, e], axis=1) @ by["input_proj.weight"].T
    return norm(over_layer(MIMO, x), by["final_layernorm.weight"])


def test_routers_of_experts_stay_dense(tmp_path: Path) -> None:
    folder = tiny.build_target(tmp_path / "target", QWEN3_NEXT)
    model = target(folder)
    mx.save_safetensors(str(folder / "heads.safetensors"), tiny.next_as_trained())
    packed = {"group_size": 32, "bits": 4}
    quantise(model.network, packed)
    made = heads(replace(model, config={**model.config, "quantization": packed})).network
    weights = dict(tree_flatten(made.parameters()))
    scaled = {name for name in weights if name.endswith("scales")}
    assert {"layers.0.mlp.switch_mlp.up_proj.scales", "fc.scales"} < scaled
    assert not [name for name in scaled if "gate.scales" in name]


NEXT = pytest.param(
    QWEN3_NEXT, tiny.next_as_trained, tiny.around_next, "layers.0.", states_next, (), id="next"
)
MIMO_7B = pytest.param(
    MIMO, tiny.mimo_as_trained, tiny.around_mimo, "block.", states_mimo, (1,), id="mimo"
)


@pytest.mark.parametrize(("config", "stored", "around", "layer", "states", "taps"), [NEXT, MIMO_7B])
def test_heads_are_found_and_say_what_their_layer_says(
    tmp_path: Path,
    config: dict[str, Any],
    stored: Callable[[], Weights],
    around: Callable[[], Weights],
    layer: str,
    states: States,
    taps: tuple[int, ...],
) -> None:
    folder = tiny.build_target(tmp_path / "target", config)
    model = target(folder)
    mx.save_safetensors(str(folder / "heads.safetensors"), stored())
    found = heads(model)
    weights = dict(tree_flatten(found.network.parameters()))
    expected = around() | {layer + name: a for name, a in tiny.layer_of(config).items()}
    assert weights.keys() == expected.keys()
    for name, array in expected.items():
        assert mx.allclose(weights[name], array, rtol=0, atol=1e-6), name
    assert (tuple(found.taps), found.most) == (taps, 3)

    tokens, key = [5, 9, 200, 31, 7, 7, 100], mx.random.key(1)
    rows = mx.random.normal((6, 64), key=key)
    drafter = found.make(SamplingParams(temperature=0))
    drafter.hear(tokens)
    drafter.look(rows[:4])
    drafter.look(rows[4:])
    parts = target_of(model.network)
    drawn: list[int] = []
    for _ in range(3):
        made = states(parts.embed(mx.array([*tokens[1:], *drawn])), rows)
        drawn.append(int(mx.argmax(parts.head(made[-1:]))))
        rows = mx.concatenate([rows, made[-1:]])
    assert drafter.propose(3) == drawn
    whole = found.network(
        parts.embed(mx.array([tokens[1:]])), rows[None, :6], found.network.make_cache()
    )
    assert mx.allclose(whole[0], made[:6], rtol=0, atol=1e-4)
