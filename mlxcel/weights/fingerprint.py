"""A digest of a loaded model, so that KV on disk is never read by another one.

Names and shapes are not enough: two fine-tunes of one model agree in them. The weights are summed
on the device, which costs one pass over them.
"""

import hashlib
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

WORDS = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}


def fingerprint(network: nn.Module) -> str:
    """64 hex digits over names, types, shapes and values of all parameters."""
    made = hashlib.sha256(b"mlxcel:weights:v1")
    for name, array in sorted(cast(list[tuple[str, mx.array]], tree_flatten(network.parameters()))):
        made.update(f"{name} {array.dtype} {array.shape} ".encode())
        made.update(_sums(array).encode())
    return made.hexdigest()


def _sums(array: mx.array) -> str:
    """Of the raw words, and of the words weighted by their place: a swap shows too. Modulo 2^32:
    integers, so the order of summation does not matter."""
    words: Any = array.reshape(-1).view(WORDS[array.dtype.size]).astype(mx.uint32)
    places = mx.arange(words.size, dtype=mx.uint32) * 2 + 1
    plain, placed = mx.sum(words), mx.sum(words * places)
    return f"{plain.item()} {placed.item()}"
