"""How much memory a request needs: arithmetic on the model's card (scheduler contract 10, for
every family)."""

from mlxcel.weights.card import MemoryCard

KV_STEP = 256
"""KV arrays grow in steps of this many tokens."""
ACTIVATION_BYTES = 4
"""Each activation is counted as float32, which softmax and normalisation use inside."""


def token_bytes(card: MemoryCard) -> int:
    """KV of one token in all layers that attend to every token."""
    return card.attention_layers * 2 * card.kv_heads * card.head_dim * card.kv_dtype_bytes


def forward_bytes(card: MemoryCard, tokens: int, keys: int) -> int:
    """The most that a forward of a prompt's `tokens` over `keys` holds beside weights and KV: a
    few copies of the residual stream, both sides of the widest projection, the scores of one
    layer's attention with their softmax where it is not fused, and the logits of one position."""
    wide = 4 * card.hidden + 2 * card.widest_projection + 2 * card.unfused_heads * keys
    return (tokens * wide + card.vocab) * ACTIVATION_BYTES


def request_bytes(card: MemoryCard, prompt: int, planned: int, chunk: int, *, cap: int = 0) -> int:
    """Memory of the whole process with this request alone: weights, its KV to the last planned
    token, its state, and the largest forward. `chunk` 0: the prompt is read at once. `cap`:
    tokens a row holds at most (`max_kv_size`), 0: all."""
    tokens = min(chunk or prompt, prompt)
    most = cap + tokens if cap else prompt + planned
    rounded = -(-min(prompt + planned, most) // KV_STEP) * KV_STEP
    forward = forward_bytes(card, tokens, min(prompt, most))
    return card.weights_bytes + rounded * token_bytes(card) + card.state_bytes + forward
