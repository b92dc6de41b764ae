"""The card a memory estimate is made from, read off networks of several families."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_reduce
from mlx_lm.models.cache import KVCache

from mlxcel.weights.card import memory_card
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.precision import Backend
from tests.tiny.families import COMMON, DEEPSEEK_V3, GEMMA3, NEMOTRON_H, QWEN3_MOE, network_of

LLAMA = COMMON | {"model_type": "llama"}


def loaded(
    config: dict[str, Any], network: nn.Module, backend: Backend = Backend.CPU
) -> LoadedModel:
    weights: int = tree_reduce(lambda total, a: total + a.nbytes, network.parameters(), 0)
    return LoadedModel(
        network=network,
        folder=Path("of-no-interest"),
        config=config,
        precision="",
        backend=backend,
        parameters=0,
        weights_bytes=weights,
        train_window=512,
    )


WINDOWS = GEMMA3 | {"num_hidden_layers": 4}
MAMBA = (4 - 1) * (8 * 8 + 2 * 2 * 16) * 4 + 8 * 8 * 16 * 4
"""One layer by the contract: convolution state, then heads x head_dim x state_size."""


@pytest.mark.parametrize(
    ("config", "layers", "heads", "head_dim", "state", "widest"),
    [
        pytest.param(LLAMA, 4, 2, 16, 0, 128, id="llama"),
        pytest.param(NEMOTRON_H, 1, 2, 16, 2 * MAMBA, 200, id="state-beside-attention"),
        pytest.param(WINDOWS, 2, 2, 16, 2 * 2 * 2 * 16 * 32 * 4, 128, id="windows"),
        pytest.param(QWEN3_MOE, 4, 2, 16, 0, 2 * 96, id="two-experts-of-96"),
        pytest.param(DEEPSEEK_V3, 4, 1, (48 + 16) // 2, 0, 128, id="latent-attention"),
    ],
)
def test_card_of_a_family(
    config: dict[str, Any], layers: int, heads: int, head_dim: int, state: int, widest: int
) -> None:
    card = memory_card(loaded(config, network_of(config)))
    assert (card.attention_layers, card.kv_heads, card.head_dim) == (layers, heads, head_dim)
    assert (card.kv_dtype_bytes, card.state_bytes) == (4, state)
    assert (card.hidden, card.widest_projection, card.vocab) == (64, widest, config["vocab_size"])
    assert card.unfused_heads == 4


def test_measuring_computes_nothing() -> None:
    network = network_of(LLAMA)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    memory_card(loaded(LLAMA, network))
    assert mx.get_peak_memory() - before < 4096


def test_types_are_those_of_the_activations() -> None:
    network = network_of(LLAMA)
    network.set_dtype(mx.bfloat16)
    assert memory_card(loaded(LLAMA, network)).kv_dtype_bytes == 2


def test_quantised_projections_count_what_they_make() -> None:
    network = network_of(LLAMA)
    nn.quantize(network, group_size=32, bits=4)
    assert memory_card(loaded(LLAMA, network)).widest_projection == 128


@pytest.mark.parametrize(
    ("backend", "dtype", "head_dim", "expected"),
    [
        pytest.param(Backend.CPU, mx.bfloat16, 64, 4, id="cpu"),
        pytest.param(Backend.METAL, mx.float32, 64, 0, id="metal"),
        pytest.param(Backend.METAL, mx.float32, 16, 4, id="metal-odd-head"),
        pytest.param(Backend.CUDA, mx.bfloat16, 64, 0, id="cuda"),
        pytest.param(Backend.CUDA, mx.float32, 64, 4, id="cuda-float32"),
    ],
)
def test_scores_are_counted_where_attention_is_not_fused(
    backend: Backend, dtype: mx.Dtype, head_dim: int, expected: int
) -> None:
    config = LLAMA | {"head_dim": head_dim}
    network = network_of(config)
    network.set_dtype(dtype)
    assert memory_card(loaded(config, network, backend)).unfused_heads == expected


class Picky(nn.Module):
    """Wants more than tokens, as some models of several modalities do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(8, 24)]

    def __call__(self, tokens: mx.array, *, pixels: mx.array, cache: list[KVCache]) -> mx.array:
        raise AssertionError("never reached without pixels")


def test_config_is_read_where_a_forward_cannot_measure() -> None:
    text = {"num_hidden_layers": 7, "num_attention_heads": 6, "num_key_value_heads": 3}
    config = {"text_config": text | {"hidden_size": 96, "vocab_size": 50}, "model_type": "seeing"}
    card = memory_card(loaded(config, Picky()))
    assert (card.attention_layers, card.kv_heads, card.head_dim) == (7, 3, 16)
    assert (card.kv_dtype_bytes, card.hidden, card.vocab) == (2, 96, 50)
    assert (card.widest_projection, card.unfused_heads) == (24, 6)
