"""The pure parts of the GGUF conversion; the whole of it runs on SmolLM2 in tests/whole."""

import pytest

from mlxcel.weights.gguf import hf_name, quantization, unpermute

import mlx.core as mx  # isort: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("token_embd.weight", "model.embed_tokens.weight", id="embedding"),
        pytest.param("blk.3.attn_q.scales", "model.layers.3.self_attn.q_proj.scales", id="layer"),
        pytest.param("output.weight", "lm_head.weight", id="head"),
        pytest.param("rope_freqs.weight", None, id="left-out"),
        pytest.param("blk.0.unheard_of.weight", None, id="unknown-part"),
    ],
)
def test_names(name: str, expected: str | None) -> None:
    assert hf_name(name) == expected


def test_unpermute_undoes_the_interleaving_of_llama_cpp() -> None:
    heads, half, columns = 2, 3, 4
    rows = mx.arange(heads * 2 * half * columns).reshape(heads * 2 * half, columns)
    # llama.cpp: [heads, 2, half] -> [heads, half, 2]
    permuted = rows.reshape(heads, 2, half, columns).swapaxes(1, 2).reshape(rows.shape)
    assert mx.array_equal(unpermute(permuted, heads), rows)


def test_quantization_lists_what_differs_from_the_commonest_form() -> None:
    def packed(bits: int) -> dict[str, mx.array]:
        return {"weight": mx.zeros((2, 64 * bits // 32)), "scales": mx.zeros((2, 2))}

    weights = {
        f"{path}.{kind}": array
        for path, bits in (("a", 4), ("b", 4), ("embed", 8))
        for kind, array in packed(bits).items()
    }
    assert quantization(weights) == {
        "group_size": 32,
        "bits": 4,
        "mode": "affine",
        "embed": {"group_size": 32, "bits": 8},
    }


def test_dense_weights_have_no_quantization() -> None:
    assert quantization({"a.weight": mx.zeros((2, 2))}) is None
