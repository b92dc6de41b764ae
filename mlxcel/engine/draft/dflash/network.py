"""The network of a DFlash head, with the module names of its checkpoints.

Its layers are those of Qwen3, but for the attention: a block looks at rows made of the target's
hidden states and at itself. Embedding and output layer are usually the target's, and not here.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.activations import swiglu
from mlx_lm.models.rope_utils import initialize_rope

from mlxcel.core.errors import StartupError
from mlxcel.engine.draft.dflash.config import DFlashConfig
from mlxcel.engine.draft.dflash.context import Context, Whole, Window


class Network(nn.Module):
    """`has_embedding`, `has_head`: the checkpoint has one of its own."""

    def __init__(self, config: DFlashConfig, *, has_embedding: bool, has_head: bool) -> None:
        super().__init__()
        self.config = config
        hidden, vocab = config.hidden_size, config.vocab_size
        self.fc = nn.Linear(len(config.target_layer_ids) * hidden, hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.layers = [Layer(config, n) for n in range(config.num_hidden_layers)]
        self.norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        if config.is_dspark:
            self.markov_head = Markov(vocab, config.markov_rank)
        if has_embedding:
            self.embed_tokens = nn.Embedding(vocab, hidden)
        if has_head:
            self.lm_head = nn.Linear(hidden, vocab, bias=False)

    @property
    def dtype(self) -> mx.Dtype:
        dtype: mx.Dtype = self.norm.weight.dtype
        return dtype

    def contexts(self) -> list[Context]:
        """Of a row of which nothing was read."""
        return [layer.self_attn.context() for layer in self.layers]

    def read(self, rows: mx.array, contexts: Sequence[Context]) -> None:
        """Context rows `[1, n, hidden]` of the next positions."""
        rows = rows.astype(self.dtype)
        for layer, context in zip(self.layers, contexts, strict=True):
            layer.self_attn.read(rows, context)

    def __call__(self, x: mx.array, contexts: Sequence[Context]) -> mx.array:
        """Embeddings `[1, block, hidden]` of the positions behind the context -> what the output
        layer reads, of the same shape."""
        x = x.astype(self.dtype)
        for layer, context in zip(self.layers, contexts, strict=True):
            x = layer(x, context)
        out: mx.array = self.norm(x)
        return out


class ContextRows(nn.Module):
    """What is kept of a position: `[..., taps * hidden]` -> `[..., hidden]`. The head's own
    modules."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.fc = network.fc
        self.hidden_norm = network.hidden_norm

    def __call__(self, taps: mx.array) -> mx.array:
        rows: mx.array = self.hidden_norm(self.fc(taps.astype(self.hidden_norm.weight.dtype)))
        return rows


class Markov(nn.Module):
    """What the token before adds to the logits of a position in a DSpark head."""

    def __init__(self, vocab: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, vocab, bias=False)

    def __call__(self, before: mx.array) -> mx.array:
        """int32 `[n]` -> `[n, vocab]`."""
        added: mx.array = self.markov_w2(self.markov_w1(before))
        return added


class Layer(nn.Module):
    def __init__(self, config: DFlashConfig, index: int) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = Attention(config, is_sliding=config.is_sliding(index))
        self.mlp = MLP(hidden, config.intermediate_size)
        self.input_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps=eps)

    def __call__(self, x: mx.array, context: Context) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), context)
        return x + self.mlp(self.post_attention_layernorm(x))


class MLP(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        out: mx.array = self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))
        return out


class Attention(nn.Module):
    """Sees its whole context. Within a block a full layer sees all of it, a sliding one only what
    comes before, unless the config says otherwise."""

    def __init__(self, config: DFlashConfig, *, is_sliding: bool) -> None:
        super().__init__()
        hidden, dim = config.hidden_size, config.head_dim
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = nn.Linear(hidden, heads * dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(heads * dim, hidden, bias=False)
        self.q_norm = nn.RMSNorm(dim, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(dim, eps=config.rms_norm_eps)
        self.rope = _rope(config)
        self._dim = dim
        self._window = config.sliding_window if is_sliding else None
        self._mask = "causal" if is_sliding and config.is_causal else None

    def context(self) -> Context:
        return Whole() if self._window is None else Window(self._window)

    def read(self, rows: mx.array, context: Context) -> None:
        """Not layer-normed again: rows come out of a norm."""
        rows = rows[:, context.skip(rows.shape[1]) :]
        context.append(*self._keys_and_values(rows, context.offset))

    def __call__(self, x: mx.array, context: Context) -> mx.array:
        here = context.offset
        queries = self.rope(self.q_norm(self._split(self.q_proj(x))), offset=here)
        mask = self._mask or context.mask(x.shape[1])
        keys, values = context.beside(*self._keys_and_values(x, here))
        seen = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=self._dim**-0.5, mask=mask
        )
        out: mx.array = self.o_proj(seen.transpose(0, 2, 1, 3).flatten(2))
        return out

    def _keys_and_values(self, x: mx.array, offset: int) -> tuple[mx.array, mx.array]:
        keys = self.rope(self.k_norm(self._split(self.k_proj(x))), offset=offset)
        return keys, self._split(self.v_proj(x))

    def _split(self, x: mx.array) -> mx.array:
        """`[1, n, heads * dim]` -> `[1, heads, n, dim]`."""
        shape = *x.shape[:2], x.shape[2] // self._dim, self._dim  # -1 fails where n is 0
        return x.reshape(shape).transpose(0, 2, 1, 3)


def _rope(config: DFlashConfig) -> Any:
    try:
        return initialize_rope(
            config.head_dim,
            base=config.rope_theta,
            traditional=not config.rope_is_neox_style,
            scaling_config=config.rope_scaling,
            max_position_embeddings=config.max_position_embeddings,
        )
    except (KeyError, ValueError) as why:
        raise StartupError(f"draft.path: rope_scaling {config.rope_scaling}: {why}") from why
