"""The newest values of `turbo4-delegated`, layer by layer."""

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.engine.kv.codec import LayerCodec, Plain
from mlxcel.engine.kv.coded import CodedKVCache
from mlxcel.engine.kv.columns import Ring
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV
from mlxcel.engine.kv.turbo import Turbo


@pytest.mark.parametrize("lengths", [(3,), (20, 5), (16, 16), (40, 9, 17)])
def test_newest_values_are_exact_and_older_ones_packed(lengths: tuple[int, ...]) -> None:
    window = 8
    codec = LayerCodec(
        keys=Plain(), values=Turbo(4, 16, layer=0, side="v"), recent=window, recent_dim=16
    )
    kv = RaggedKV(1, 4, codecs=[codec])
    rows = []
    for seed, length in enumerate(lengths):
        values = mx.array(np.random.default_rng(seed).standard_normal((1, 2, 60, 16)), mx.float32)
        cache = CodedKVCache(codec)
        for start in range(0, length, 6):
            chunk = values[:, :, start : min(start + 6, length)]
            cache.update_and_fetch(chunk, chunk)
        kv.join(Prefilled([cache], (length,)))
        rows.append(values)
    at = list(lengths)
    for turn in range(15):
        if turn == 9 and len(rows) > 1:
            kv.leave(0)
            at[0], rows[0] = at[-1], rows[-1]
            del at[-1], rows[-1]
        kv.begin()
        new = mx.concatenate([row[:, :, n : n + 1] for row, n in zip(rows, at, strict=True)])
        keys, seen = kv.layers[0].update_and_fetch(new, new)
        kv.advance()
        for place, (row, n) in enumerate(zip(rows, at, strict=True)):
            exact = np.array(row[0, :, : n + 1])
            turbo = codec.values
            packed = np.array(turbo.decode(turbo.encode(row[0, :, : n + 1]), mx.float32))
            newest = max(0, n + 1 - window)
            np.testing.assert_array_equal(np.array(keys)[place, :, : n + 1], exact)
            got = np.array(seen)[place, :, : n + 1]
            np.testing.assert_array_equal(got[:, newest:], exact[:, newest:])
            np.testing.assert_allclose(got[:, :newest], packed[:, :newest], atol=1e-6)
        at = [n + 1 for n in at]


def test_ring_has_room_for_no_more_than_its_cap() -> None:
    assert (Ring(128).room(3), Ring(300).room(3), Ring(0).room(257)) == (128, 256, 512)
