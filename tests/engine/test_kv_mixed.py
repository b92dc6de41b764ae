"""KV modes of models that keep another state in some of their layers."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlxcel.engine.kv.choose import batch_for, row_caches
from mlxcel.engine.kv.library import LibraryKV, SoloKV
from mlxcel.engine.kv.mixed import MixedKV
from mlxcel.engine.kv.modes import KVPlan, plan_kv
from mlxcel.engine.kv.parts import column_bytes
from mlxcel.engine.kv.prefilled import Prefilled
from tests.engine.kv_rows import Logits, step, text
from tests.tiny.families import GEMMA3, GEMMA4, GPT_OSS, LLAMA4, QWEN3_5, network_of

pytestmark = pytest.mark.slow

NEAR = 0.02
KV = {"mode": "fp16", "type_k": None, "type_v": None, "boundary_v_layers": 0, "bits": 0,
      "group_size": 64, "scheme": "uniform", "skip_last_layer": True}  # fmt: skip
FAMILIES = {"qwen3_5": QWEN3_5, "gemma3_text": GEMMA3, "gemma4_text": GEMMA4, "gpt_oss": GPT_OSS}
MODES = ["int8", "turbo4", "turbo4-delegated", "turbo3"]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def network(family: str) -> nn.Module:
    return network_of(FAMILIES[family])


@pytest.fixture(params=MODES)
def plan(request: pytest.FixtureRequest, family: str, network: nn.Module) -> KVPlan:
    return plan_for(network, family, request.param)


def plan_for(network: nn.Module, family: str, mode: str) -> KVPlan:
    plan = plan_kv(network, family, {"max_kv_size": 0, "kv": KV | {"mode": mode}})
    assert any(plan.codecs)
    assert not all(plan.codecs)
    return plan


def read(network: nn.Module, plan: KVPlan, tokens: list[int], chunk: int = 0) -> Prefilled:
    """All tokens but the last."""
    caches: list[Any] = row_caches(network, plan)
    head = tokens[:-1]
    for start in range(0, len(head), chunk or len(head)):
        network(mx.array([head[start : start + (chunk or len(head))]]), cache=caches)
        mx.eval([cache.state for cache in caches])
    return Prefilled(caches, (len(head),))


def alone(network: nn.Module, plan: KVPlan, row: list[int], steps: int) -> list[Logits]:
    """The logits of the last steps, in a batch of one."""
    kv = batch_for(network, 1, plan)
    assert isinstance(kv, MixedKV)
    kv.join(read(network, plan, row[:-steps]))
    return [step(network, kv, [token])[0] for token in row[-steps - 1 : -1]]


def test_rows_of_mixed_lengths_equal_rows_alone(network: nn.Module, plan: KVPlan) -> None:
    """One leaves, another moves into its place, a third comes."""
    rows = [text(n + 6, seed) for seed, n in enumerate((20, 9, 45, 14))]
    expected = [alone(network, plan, row, 6) for row in rows]
    kv = batch_for(network, 4, plan)
    assert isinstance(kv, MixedKV)
    for row in rows[:3]:
        kv.join(read(network, plan, row[:-6]))
    here, turn = [0, 1, 2], [0, 0, 0, 0]
    for now in range(6):
        if now == 2:
            kv.leave(0)
            here = [2, 1]
        if now == 4:
            kv.join(read(network, plan, rows[3][:-6]))
            here.append(3)
        logits = step(network, kv, [rows[row][turn[row] - 7] for row in here])
        for got, row in zip(logits, here, strict=True):
            np.testing.assert_allclose(got, expected[row][turn[row]], atol=NEAR)
            turn[row] += 1


def test_row_alone_goes_on_as_its_prompt_would(network: nn.Module, family: str) -> None:
    """Prompts and batches see the same: one forward over all, or token by token in a batch."""
    plan = plan_for(network, family, "int8")
    row = text(40)
    caches: list[Any] = row_caches(network, plan)
    whole = np.array(network(mx.array([row]), cache=caches)[0])
    for at, got in enumerate(alone(network, plan, row, 10)):
        np.testing.assert_allclose(got, whole[at - 11], atol=NEAR)


def test_mode_saves_memory_where_layers_attend(network: nn.Module, family: str) -> None:
    sizes = {}
    for plan in (KVPlan(), plan_for(network, family, "int8")):
        kv = batch_for(network, 4, plan)
        kv.join(read(network, plan, text(250)))
        step(network, kv, [1])
        sizes[plan.effective] = kv.nbytes
    assert sizes["int8"] < 0.85 * sizes["fp16"]


def test_bytes_of_a_token_are_those_of_layers_that_attend(network: nn.Module, family: str) -> None:
    sizes = []
    for plan in (KVPlan(), plan_for(network, family, "int8")):
        caches: list[Any] = row_caches(network, plan)
        network(mx.array([[0]]), cache=caches)
        sizes.append(column_bytes(caches))
    heads, dim = 2, 32 if family == "gemma4_text" else 16
    layers = sum(codec is not None for codec in plan.codecs)
    assert sizes == [layers * 2 * heads * dim * 4, layers * 2 * heads * (dim + 2)]


def test_prompt_of_one_token_joins_rows_that_decode(network: nn.Module, plan: KVPlan) -> None:
    row = text(20)
    kv = batch_for(network, 4, plan)
    kv.join(read(network, plan, row))
    kv.join(Prefilled(read(network, plan, [7, 0]).caches, (0,)))
    logits = step(network, kv, [row[-1], 9])
    single = batch_for(network, 1, plan)
    single.join(Prefilled(read(network, plan, [7, 0]).caches, (0,)))
    np.testing.assert_allclose(logits[1], step(network, single, [9])[0], atol=NEAR)


def test_no_byte_stays_when_the_last_row_leaves(network: nn.Module, plan: KVPlan) -> None:
    kv = batch_for(network, 4, plan)
    for n in (5, 9):
        kv.join(read(network, plan, text(n)))
    kv.leave(1)
    kv.check()
    kv.leave(0)
    kv.check()
    assert (len(kv), kv.nbytes, kv.layers) == (0, 0, [])


def test_check_finds_a_row_that_one_side_lost(network: nn.Module, family: str) -> None:
    kv = batch_for(network, 4, plan_for(network, family, "int8"))
    assert isinstance(kv, MixedKV)
    kv.join(read(network, plan_for(network, family, "int8"), text(9)))
    kv.check()
    kv._rest.leave(0)
    with pytest.raises(AssertionError):
        kv.check()


def test_rows_that_cannot_be_merged_decode_one_at_a_time() -> None:
    """Llama 4: layers that attend to chunks keep their state, the others get the mode."""
    network = network_of(LLAMA4)
    plan = plan_for(network, "llama4", "int8")
    kv = batch_for(network, 1, plan)
    assert isinstance(kv, MixedKV)
    assert isinstance(kv._rest, SoloKV)
    row = text(60)
    caches: list[Any] = row_caches(network, plan)
    whole = np.array(network(mx.array([row[:-1]]), cache=caches)[0, -1])
    np.testing.assert_allclose(alone(network, plan, row, 1)[0], whole, atol=NEAR)


def test_full_precision_stays_with_the_library(network: nn.Module) -> None:
    assert isinstance(batch_for(network, 4, KVPlan()), LibraryKV)
