"""A tiny llama that says the next byte: every text of it is known beforehand."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from mlxcel.core.byte_vocab import END, VOCAB_SIZE
from tests.tiny.checkpoint import build_tiny_checkpoint

THINK, CLOSE = 258, 259
"""Markers of a think block."""
SUCCESSORS = {
    ord("?"): THINK,
    THINK: ord("a"),
    CLOSE: ord("A"),
    ord("."): END,
    ord("7"): ord("7"),
    ord("1"): ord("2"),
    ord("2"): ord("1"),
}
"""What it says after a token; after others, the one with the next number."""
LIKELY = 50.0
"""Nats between the successor and any other token: sampling changes nothing."""


def build_counting_checkpoint(folder: Path) -> Path:
    """Writes the folder and returns it. The layers add nothing: the last token alone decides."""
    build_tiny_checkpoint(folder, hidden=VOCAB_SIZE)
    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if "o_proj" in name or "down_proj" in name:
            weights[name] = np.zeros_like(weights[name])
    weights["model.embed_tokens.weight"] = np.eye(VOCAB_SIZE, dtype=np.float32)
    head = np.zeros((VOCAB_SIZE, VOCAB_SIZE), np.float32)
    for token in range(VOCAB_SIZE):
        successor = SUCCESSORS.get(token, (token + 1) % VOCAB_SIZE)
        head[successor, token] = LIKELY / VOCAB_SIZE**0.5
    weights["lm_head.weight"] = head
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})
    return folder
