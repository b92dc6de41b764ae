"""A DFlash head from its folder: which tensors it may have, and for which targets it is."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.core.byte_vocab import VOCAB_SIZE
from mlxcel.core.errors import StartupError
from mlxcel.engine.draft.dflash.network import Network
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.weights.load import LoadedModel
from tests.engine.draft.dflash_pair import drafter_of, load_head, load_target
from tests.tiny.dflash import HIDDEN, build_head, build_target, head_weights

Weights = dict[str, mx.array]
TOKENS = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_target(build_target(tmp_path_factory.mktemp("dflash") / "target"))


def logits(head: DraftHead) -> Any:
    """After a text, with context rows out of a seed."""
    drafter = drafter_of(head)
    drafter.look(mx.random.normal((3, HIDDEN), key=mx.random.key(3)))
    found = drafter._blocks.logits(TOKENS[-1], drafter._contexts, 5)
    return np.array(found.astype(mx.float32))


def test_what_it_is(model: LoadedModel, tmp_path: Path) -> None:
    folder = build_head(tmp_path / "head")
    head = load_head(folder, model)
    assert (head.kind, head.name, head.folder) == ("dflash", "head", folder)
    assert (head.width, head.most, list(head.taps)) == (HIDDEN, 5, [0, 2, 3])
    assert head.about["block_size"] == 6


def test_a_leading_model_is_stripped(model: LoadedModel, tmp_path: Path) -> None:
    one = load_head(build_head(tmp_path / "plain"), model)
    other = load_head(build_head(tmp_path / "prefixed", prefix="model."), model)
    assert (logits(one) == logits(other)).all()


def test_context_rows_are_normed_projections(model: LoadedModel, tmp_path: Path) -> None:
    head = load_head(build_head(tmp_path / "head"), model)
    taps = np.random.default_rng(0).standard_normal((1, 4, 3 * HIDDEN)).astype(np.float32)
    weights = {name: np.array(array, np.float64) for name, array in head_weights().items()}
    mixed = taps.astype(np.float64) @ weights["fc.weight"].T
    expected = mixed / np.sqrt((mixed**2).mean(-1, keepdims=True) + 1e-6)
    assert head.project is not None
    found = head.project(mx.array(taps))
    assert np.allclose(np.array(found), expected * weights["hidden_norm.weight"], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda w: w | {"fc.bias": w["norm.weight"]},
            "DFlash head of this kind has: fc.bias$",
            id="unknown",
        ),
        pytest.param(
            lambda w: {n: a for n, a in w.items() if not n.endswith("0.mlp.up_proj.weight")},
            r"heads without: layers\.0\.mlp\.up_proj\.weight$",
            id="missing",
        ),
        pytest.param(
            lambda w: {n: a for n, a in w.items() if not n.startswith("layers.1")},
            r"layers\.1\.input_layernorm\.weight",
            id="a-layer-missing",
        ),
        pytest.param(
            lambda w: w | {"norm.weight": mx.ones(7)},
            r"norm\.weight is \(7,\), it takes \(64,\)",
            id="shape",
        ),
        pytest.param(
            lambda w: {n: a for n, a in w.items() if n != "fc.weight"},
            r"no tensor fc\.weight.*draft=full_model",
            id="no-head-at-all",
        ),
    ],
)
def test_other_tensors_are_refused(
    model: LoadedModel, tmp_path: Path, change: Callable[[Weights], Weights], message: str
) -> None:
    folder = build_head(tmp_path / "head", weights=change(head_weights()))
    with pytest.raises(StartupError, match=message):
        load_head(folder, model)


def test_a_broken_file_is_named(model: LoadedModel, tmp_path: Path) -> None:
    folder = build_head(tmp_path / "head")
    (folder / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(StartupError, match=r"model\.safetensors cannot be read"):
        load_head(folder, model)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param({"hidden_size": 32}, "hidden_size 32; .* has 64", id="hidden"),
        pytest.param({"vocab_size": 300}, f"vocab_size 300; .* has {VOCAB_SIZE}", id="vocab"),
        pytest.param({"rope_scaling": {"rope_type": "odd"}}, "rope_scaling .*odd", id="rope"),
        pytest.param({"num_target_layers": 5}, "num_target_layers 5; .* has 4", id="layers"),
    ],
)
def test_a_head_of_another_model_is_refused(
    model: LoadedModel, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    folder = build_head(tmp_path / "head", **config)
    with pytest.raises(StartupError, match=message):
        load_head(folder, model)


def test_blocks_are_at_most_as_long_as_it_was_trained_with(
    model: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = build_head(tmp_path / "head", block_size=6)
    assert load_head(folder, model, block_size=4).most == 3
    assert load_head(folder, model, block_size=6).most == 5
    assert "draft.block_size" not in caplog.text
    assert load_head(folder, model, block_size=17).most == 5
    assert "draft.block_size 17 -> 6: the head was trained with blocks of 6" in caplog.text
    with pytest.raises(StartupError, match=r"draft\.block_size is 1: at least 2"):
        load_head(folder, model, block_size=1)


@pytest.mark.parametrize("owns", ["nothing", "embedding", "untied", "head", "both"])
def test_the_output_layer_is_its_own_or_that_of_the_target(
    model: LoadedModel, tmp_path: Path, owns: str
) -> None:
    """Own lm_head, own tied embedding, the target's; a block is embedded with its own embedding
    if there is one."""
    rng = np.random.default_rng(2)
    shape = (VOCAB_SIZE, HIDDEN)
    embedding, output = (mx.array(rng.standard_normal(shape, np.float32)) for _ in range(2))
    weights = head_weights()
    if owns in ("embedding", "untied", "both"):
        weights["embed_tokens.weight"] = embedding
    if owns in ("head", "both"):
        weights["lm_head.weight"] = output
    folder = build_head(tmp_path / "head", weights=weights, tie_word_embeddings=owns != "untied")
    blocks = drafter_of(load_head(folder, model))._blocks
    theirs = model.network
    head = {"head": output, "both": output, "embedding": embedding}
    expected = head.get(owns, theirs.lm_head.weight)
    hidden = mx.random.normal((1, 2, HIDDEN), key=mx.random.key(0))
    assert mx.allclose(blocks.head(hidden), hidden @ expected.T, atol=1e-4).item()
    source = theirs.model.embed_tokens.weight if owns in ("nothing", "head") else embedding
    ids = mx.array([[3, 4]])
    assert mx.array_equal(blocks.embed(ids), source[ids]).item()


def test_a_target_that_scales_its_embedding_does_it_here_too(
    model: LoadedModel, tmp_path: Path
) -> None:
    folder = build_head(tmp_path / "head")
    ids = mx.array([[3, 4]])
    plain = drafter_of(load_head(folder, model))._blocks.embed(ids)
    for config, scale in (
        ({"model_type": "gemma3_text"}, 8.0),
        ({"model_type": "granite", "embedding_multiplier": 12.0}, 12.0),
        ({"model_type": "falcon_h1", "embedding_multiplier": 12.0}, 1.0),
    ):
        other = replace(model, config={**model.config, **config})
        found = drafter_of(load_head(folder, other))._blocks.embed(ids)
        assert mx.allclose(found, scale * plain).item(), config


def quantised(bits: int) -> tuple[Weights, Weights]:
    """And what its tensors stand for."""
    found: Weights = {}
    meant: Weights = {}
    for name, array in head_weights().items():
        half = array.astype(mx.bfloat16)
        if array.ndim == 1:
            found[name] = meant[name] = half
            continue
        weight, scales, biases = mx.quantize(half, 32, bits)
        stem = name.removesuffix(".weight")
        found |= {name: weight, f"{stem}.scales": scales, f"{stem}.biases": biases}
        meant[name] = mx.dequantize(weight, scales, biases, 32, bits)
    return found, meant


@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantised_checkpoint(model: LoadedModel, tmp_path: Path, bits: int) -> None:
    """Stays as it is where that is asked for; beside a dense target it is made dense."""
    weights, meant = quantised(bits)
    how = {"group_size": 32, "bits": bits}
    folder = build_head(tmp_path / "head", weights=weights, quantization=how)
    stored = load_head(folder, model, precision="as-stored")
    dense = load_head(folder, model)
    assert (stored.about["is_quantised"], dense.about["is_quantised"]) == (True, False)
    expected = logits(load_head(build_head(tmp_path / "dense", weights=meant), model))
    assert abs(logits(dense) - expected).max() < 1e-5
    assert abs(logits(stored) - expected).mean() < 0.1 * expected.std()


@pytest.mark.parametrize(
    ("asked", "dtype"),
    [("auto", mx.float32), ("as-stored", mx.bfloat16), ("float16", mx.float16)],
    ids=["auto", "as-stored", "float16"],
)
def test_precision(model: LoadedModel, tmp_path: Path, asked: str, dtype: mx.Dtype) -> None:
    """By itself it is held as the target is; what the target's parts get is in the target's."""
    weights = {name: array.astype(mx.bfloat16) for name, array in head_weights().items()}
    head = load_head(build_head(tmp_path / "head", weights=weights), model, precision=asked)
    assert isinstance(head.network, Network)
    assert head.network.dtype == dtype
    assert head.project is not None
    assert head.project(mx.zeros((1, 1, 3 * HIDDEN))).dtype == dtype
    drafter = drafter_of(head)
    drafter.look(mx.ones((3, HIDDEN)))
    blocks, contexts = drafter._blocks, drafter._contexts
    assert head.network(blocks.embed(mx.array([[1]])), contexts).dtype == dtype
    assert blocks.logits(0, contexts, 1).dtype == mx.float32


def test_the_target_s_output_layer_is_not_widened(tmp_path: Path) -> None:
    half = load_target(build_target(tmp_path / "target"), precision="bfloat16")
    head = load_head(build_head(tmp_path / "head"), half, precision="float32")
    drafter = drafter_of(head)
    drafter.look(mx.ones((3, HIDDEN)))
    assert drafter._blocks.logits(0, drafter._contexts, 1).dtype == mx.bfloat16
