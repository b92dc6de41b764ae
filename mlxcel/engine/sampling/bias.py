"""Step 1 of the chain: what is added to logits before anything else."""

from collections.abc import Sequence
from functools import lru_cache

import mlx.core as mx
import numpy as np

from mlxcel.core.sampling import SamplingParams

LARGEST = 1e4
"""An infinite bias upwards. Finite, so that tokens that have it keep an order among themselves and
a ban still wins; far more than logits differ."""
WIDE_KEPT = 8
"""Wide biases unpacked last. Mostly all rows have the server's, and rows join and leave often."""
_PAIR = np.dtype([("token", "<i4"), ("bias", "<f4")])


def dense_bias(rows: Sequence[SamplingParams], vocab: int) -> mx.array | None:
    """float32 `[rows, vocab]` to add; None when no row has a bias. Biases of one token add up."""
    if not any(row.bias or row.wide_bias for row in rows):
        return None
    dense = np.zeros((len(rows), vocab), dtype=np.float32)
    for place, row in enumerate(rows):
        _add(dense[place], np.array(list(row.bias), dtype=_PAIR))
        if row.wide_bias:
            dense[place] += _wide(row.wide_bias, vocab)
    return mx.array(dense)


@lru_cache(maxsize=WIDE_KEPT)
def _wide(packed: bytes, vocab: int) -> np.ndarray:
    """`[vocab]` out of `pack_bias`."""
    dense = np.zeros(vocab, dtype=np.float32)
    _add(dense, np.frombuffer(packed, dtype=_PAIR))
    dense.flags.writeable = False
    return dense


def _add(dense: np.ndarray, pairs: np.ndarray) -> None:
    np.add.at(dense, pairs["token"], np.minimum(pairs["bias"], LARGEST))
