"""Projections of one input as one matrix: the same model, with fewer products."""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import get_total_parameters

from mlxcel.weights.fuse import FusedProjection, fuse_projections
from tests.engine.driver import Driver, submit


class Block(nn.Module):
    def __init__(self, *, bias: bool = False, wide: int = 64) -> None:
        super().__init__()
        self.q_proj = nn.Linear(64, 96, bias=bias)
        self.k_proj = nn.Linear(64, 32, bias=bias)
        self.v_proj = nn.Linear(wide, 32, bias=bias)
        self.gate_proj = nn.Linear(64, 128, bias=False)
        self.up_proj = nn.Linear(64, 128, bias=False)

    def outputs(self, x: mx.array) -> list[mx.array]:
        return [self.q_proj(x), self.k_proj(x), self.v_proj(x), self.gate_proj(x), self.up_proj(x)]


def close(ours: list[mx.array], theirs: list[mx.array]) -> bool:
    return all(mx.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("bits", [None, 4, 8], ids=["plain", "4-bit", "8-bit"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_every_layer_gives_what_it_gave(bits: int | None, bias: bool) -> None:
    block = Block(bias=bias)
    if bits is not None:
        nn.quantize(block, group_size=32, bits=bits)
    x = mx.random.normal((2, 3, 64))
    before = block.outputs(x)
    parameters = get_total_parameters(block)
    assert fuse_projections(block) == 2
    assert close(block.outputs(x), before)
    assert close(block.outputs(2 * x), block.outputs(2 * x))
    assert get_total_parameters(block) == parameters


def test_layers_called_out_of_order_or_with_other_inputs_are_right_all_the_same() -> None:
    block = Block()
    x, y = mx.random.normal((1, 64)), mx.random.normal((1, 64))
    expected = [block.v_proj(y), block.q_proj(x), block.q_proj(y), block.k_proj(x)]
    fuse_projections(block)
    given = [block.v_proj(y), block.q_proj(x), block.q_proj(y), block.k_proj(x)]
    assert close(given, expected)


def test_nothing_of_a_result_is_kept_once_it_was_taken() -> None:
    block = Block()
    fuse_projections(block)
    block.outputs(mx.random.normal((1, 64)))
    group = block.q_proj._group
    assert group._shares == {}
    assert group._input is None


def test_layers_of_other_inputs_or_kinds_stay_apart() -> None:
    block = Block(wide=32)
    assert fuse_projections(block) == 1
    assert isinstance(block.gate_proj, FusedProjection)
    assert isinstance(block.v_proj, nn.Linear)


def test_arrays_are_counted_once() -> None:
    block = Block()
    before = sum(array.nbytes for _, array in tree_flatten(block.parameters()))
    fuse_projections(block)
    assert sum(array.nbytes for _, array in tree_flatten(block.parameters())) == before


def test_engine_says_the_same(tiny: Path) -> None:
    fused, plain = Driver(tiny, fuse="on"), Driver(tiny)
    kinds = [{type(m) for m in d.model.network.modules()} for d in (fused, plain)]
    assert [FusedProjection in kind for kind in kinds] == [True, False]
    rows = [submit(f"r{i}", [i * 7 % 256 for i in range(9 + i)], 12) for i in range(3)]
    fused.run(*rows)
    plain.run(*rows)
    for row in rows:
        assert fused.tokens(row.id) == plain.tokens(row.id)
