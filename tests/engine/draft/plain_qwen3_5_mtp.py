"""The Qwen 3.5 head written down once more: no cache, no modules, all of it anew for each token."""

import mlx.core as mx

from tests.tiny.mtp import TEXT, Weights

HEADS, KV_HEADS, DIM = (
    int(TEXT[name]) for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
)
TURNED = int(DIM * TEXT["rope_parameters"]["partial_rotary_factor"])


def hidden_states(weights: Weights, embedded: mx.array, hidden: mx.array) -> mx.array:
    """Both `[n, hidden]`, pair by pair -> `[n, hidden]`."""
    e = norm(embedded, weights["pre_fc_norm_embedding.weight"])
    h = norm(hidden, weights["pre_fc_norm_hidden.weight"])
    x = mx.concatenate([e, h], axis=1) @ weights["fc.weight"].T
    layer = {n.removeprefix("layers.0."): a for n, a in weights.items() if n.startswith("layers")}
    x = x + attention(layer, norm(x, layer["input_layernorm.weight"]))
    y = norm(x, layer["post_attention_layernorm.weight"])
    gate = y @ layer["mlp.gate_proj.weight"].T
    up = y @ layer["mlp.up_proj.weight"].T
    x = x + (gate * mx.sigmoid(gate) * up) @ layer["mlp.down_proj.weight"].T
    return norm(x, weights["norm.weight"])


def attention(layer: Weights, x: mx.array) -> mx.array:
    count = len(x)
    both = (x @ layer["self_attn.q_proj.weight"].T).reshape(count, HEADS, 2, DIM)
    keys = (x @ layer["self_attn.k_proj.weight"].T).reshape(count, KV_HEADS, DIM)
    values = (x @ layer["self_attn.v_proj.weight"].T).reshape(count, KV_HEADS, DIM)
    queries = turned(norm(both[:, :, 0], layer["self_attn.q_norm.weight"]))
    keys = turned(norm(keys, layer["self_attn.k_norm.weight"]))
    later = mx.arange(count)[:, None] < mx.arange(count)
    made = []
    for head in range(HEADS):
        shared = head // (HEADS // KV_HEADS)
        scores = queries[:, head] @ keys[:, shared].T / DIM**0.5
        weight = mx.softmax(mx.where(later, -mx.inf, scores), axis=-1)
        made.append(weight @ values[:, shared] * mx.sigmoid(both[:, head, 1]))
    return mx.concatenate(made, axis=1) @ layer["self_attn.o_proj.weight"].T


def norm(x: mx.array, weight: mx.array) -> mx.array:
    return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + TEXT["rms_norm_eps"]) * weight


def turned(x: mx.array) -> mx.array:
    """RoPE over the first `TURNED` numbers of a head; `[n, heads, dim]`."""
    half = TURNED // 2
    speed = TEXT["rope_parameters"]["rope_theta"] ** (-mx.arange(half) / half)
    angle = mx.arange(len(x))[:, None, None] * speed
    one, two, rest = mx.split(x, [half, TURNED], axis=-1)
    cos, sin = mx.cos(angle), mx.sin(angle)
    return mx.concatenate([one * cos - two * sin, two * cos + one * sin, rest], axis=-1)
