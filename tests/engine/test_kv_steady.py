"""Wide steps in few shapes: what CUDA gets is what others get, with room behind a mask."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache, trim_prompt_cache

from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV
from mlxcel.engine.kv.steady import SteadyKVCache, room, steady
from mlxcel.worker.precision import Backend
from tests.engine.driver import Driver


@pytest.fixture(scope="module")
def network(tiny: Path) -> Any:
    driver = Driver(tiny)
    yield driver.model.network
    driver.close()


def test_room() -> None:
    assert [room(n) for n in (1, 255, 256, 257, 512)] == [256, 256, 256, 512, 512]


def test_only_where_it_helps(network: Any) -> None:
    fresh = make_prompt_cache(network)
    for backend in (Backend.CPU, Backend.METAL):
        assert steady(fresh, backend) is fresh
    assert [type(cache) for cache in steady(fresh, Backend.CUDA)] == [SteadyKVCache] * len(fresh)


def test_a_text_read_in_steps_of_any_width(network: Any) -> None:
    """Grown over a step of columns, taken back, written on."""
    caches, plain = [[kind() for _ in network.layers] for kind in (SteadyKVCache, KVCache)]
    at = 0
    for width, back in ((3, 0), (1, 0), (240, 2), (9, 7), (1, 0), (16, 0), (280, 0), (2, 0)):
        tokens = mx.array([[(at + n) % 250 for n in range(width)]])
        at += width - back
        made, wanted = network(tokens, cache=caches), network(tokens, cache=plain)
        assert mx.abs(made - wanted).max().item() < 1e-4, width
        for one in (caches, plain):
            trim_prompt_cache(one, back)
        assert caches[0].offset == plain[0].offset == at
        assert all(cache.keys.shape[2] == room(cache.keys.shape[2]) for cache in caches)


@pytest.mark.parametrize("lengths", [(40, 40), (250, 7)])
def test_rows_that_decode_together(network: Any, lengths: tuple[int, ...]) -> None:
    made = []
    for is_steady in (True, False):
        rows = RaggedKV(len(network.layers), 2, is_steady=is_steady)
        for length in lengths:
            caches = make_prompt_cache(network)
            network(mx.arange(length)[None] % 97, cache=caches)
            rows.join(Prefilled(caches, (length,)))
        for span in (5, 1, 9):
            rows.begin(span)
            if span > 1:
                assert rows.width == (room(max(rows._lengths) + span) if is_steady else rows.width)
            tokens = mx.arange(2 * span).reshape(2, span)
            made.append(network(tokens, cache=rows.layers))
            rows.advance([span, 1])
        rows.check()
    for mine, wanted in zip(made[:3], made[3:], strict=True):
        assert mx.abs(mine - wanted).max().item() < 1e-4
