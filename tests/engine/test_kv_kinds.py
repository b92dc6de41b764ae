"""Which KV state a model gets, and the library's own: rotating windows, recurrent state."""

import copy
import json
import shutil
from functools import partial
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.utils import load_model

from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.kv.capped import CappedKVCache
from mlxcel.engine.kv.choose import batch_for, can_batch, can_cohort, row_caches
from mlxcel.engine.kv.library import LibraryKV, SoloKV
from mlxcel.engine.kv.modes import KVPlan, plan_kv
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.kv.ragged import RaggedKV
from tests.engine.driver import Driver, submit
from tests.engine.kv_rows import Logits, assert_near, prefilled, step, text
from tests.tiny.families import hybrid_network

WINDOW = 16
FP16 = {"mode": "fp16", "type_k": None, "type_v": None, "bits": 0}


@pytest.fixture(scope="module")
def sliding_folder(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, its first layer attending to the last 16 tokens alone."""
    folder = tmp_path_factory.mktemp("sliding") / "tiny-sliding"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": WINDOW,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def plain_network(tiny: Path) -> nn.Module:
    return load_model(tiny)[0]


@pytest.fixture(scope="module")
def sliding_network(sliding_folder: Path) -> nn.Module:
    return load_model(sliding_folder)[0]


@pytest.fixture(scope="module", params=["sliding", "hybrid"])
def network(request: pytest.FixtureRequest, sliding_network: nn.Module) -> nn.Module:
    return sliding_network if request.param == "sliding" else hybrid_network()


class Caches(nn.Module):
    """A network of which only the caches are of interest."""

    def __init__(self, *caches: object) -> None:
        super().__init__()
        self._caches = caches

    def make_cache(self) -> list[object]:
        return list(self._caches)


# The choice.


@pytest.mark.parametrize(
    ("caches", "slots", "kind"),
    [
        pytest.param([KVCache(), KVCache()], 4, RaggedKV, id="plain"),
        pytest.param([KVCache(), KVCache()], 1, RaggedKV, id="plain-alone"),
        pytest.param([RotatingKVCache(8), KVCache()], 4, LibraryKV, id="windows"),
        pytest.param([ArraysCache(2), KVCache()], 4, LibraryKV, id="hybrid"),
        pytest.param([CacheList(KVCache(), ArraysCache(1))], 4, LibraryKV, id="list"),
        pytest.param([ArraysCache(2), KVCache()], 1, SoloKV, id="hybrid-alone"),
        pytest.param([ChunkedKVCache(8), KVCache()], 4, SoloKV, id="not-mergeable"),
    ],
)
def test_batch_is_the_leanest_the_caches_allow(
    caches: list[object], slots: int, kind: type[KVBatch]
) -> None:
    assert type(batch_for(Caches(*caches), slots, KVPlan())) is kind


@pytest.mark.parametrize(
    ("caches", "family", "expected"),
    [
        pytest.param([KVCache()], "llama", True, id="plain"),
        pytest.param([RotatingKVCache(8), KVCache()], "gemma3", True, id="windows"),
        pytest.param([ArraysCache(2), KVCache()], "qwen3_5", True, id="hybrid"),
        pytest.param([ChunkedKVCache(8)], "llama4", False, id="no-merge"),
        pytest.param([CacheList(ChunkedKVCache(8), KVCache())], "x", False, id="no-merge-in-list"),
        *(
            pytest.param([KVCache()], name, False, id=name)
            for name in ("nemotron_h", "jamba", "mamba", "mamba2", "afmoe")
        ),
    ],
)
def test_rows_may_share_a_batch(caches: list[object], family: str, expected: bool) -> None:
    assert can_batch(Caches(*caches), family) is expected


@pytest.mark.parametrize(
    ("caches", "expected"),
    [
        pytest.param([KVCache(), KVCache()], True, id="plain"),
        pytest.param([RotatingKVCache(8), KVCache()], False, id="windows"),
        pytest.param([ArraysCache(2), KVCache()], False, id="recurrent"),
    ],
)
def test_prompts_may_share_a_forward(caches: list[object], expected: bool) -> None:
    assert can_cohort(Caches(*caches)) is expected


def test_cap_is_for_plain_caches_alone(
    plain_network: nn.Module, sliding_network: nn.Module
) -> None:
    options = {"max_kv_size": 64, "kv": FP16}
    plan = plan_kv(plain_network, "llama", options)
    assert plan == KVPlan(cap=64)
    assert {type(cache) for cache in row_caches(plain_network, plan)} == {CappedKVCache}
    assert {type(cache) for cache in row_caches(plain_network, KVPlan())} == {KVCache}
    plan = plan_kv(sliding_network, "llama", options)
    assert plan == KVPlan()
    assert [type(c) for c in row_caches(sliding_network, plan)] == [RotatingKVCache, KVCache]


# The library's caches.


def alone(network: nn.Module, tokens: list[int]) -> Logits:
    """The logits after the last token, one token at a time with the library's caches."""
    caches = make_prompt_cache(network)
    for token in tokens:
        logits = network(mx.array([[token]]), cache=caches)[0, -1]
        mx.eval(logits)
    return np.array(logits)


def test_rows_in_a_batch_equal_rows_alone(network: nn.Module) -> None:
    rows = [text(n + 3, n) for n in (4, 30, 11)]
    kv = batch_for(network, 4, KVPlan())
    assert isinstance(kv, LibraryKV)
    for row in rows:
        kv.join(prefilled(network, row[:-3], chunk=10))
    for n in (-4, -3, -2):
        logits = step(network, kv, [row[n] for row in rows])
    for got, row in zip(logits, rows, strict=True):
        assert_near(got, alone(network, row[:-1]))
    kv.leave(0)
    kv.check()
    assert_near(step(network, kv, [rows[2][-1], rows[1][-1]])[0], alone(network, rows[2]))


@pytest.mark.parametrize("kind", [LibraryKV, SoloKV])
def test_choices_of_one_prefill_share_nothing(
    network: nn.Module, kind: type[LibraryKV] | type[SoloKV]
) -> None:
    prompt = text(24)
    read = prefilled(network, prompt)
    for token in (3, 200):
        kv = kind(partial(make_prompt_cache, network))
        kv.join(read)
        step(network, kv, prompt[-1:])
        assert_near(step(network, kv, [token])[0], alone(network, [*prompt, token]))


@pytest.mark.parametrize("kind", [LibraryKV, SoloKV])
def test_prompt_of_one_token_reads_nothing(
    network: nn.Module, kind: type[LibraryKV] | type[SoloKV]
) -> None:
    """Its KV is padding, and a recurrent state would keep that."""
    kv = kind(partial(make_prompt_cache, network))
    kv.join(Prefilled(prefilled(network, [7, 0]).caches, (0,)))
    assert_near(step(network, kv, [9])[0], alone(network, [9]))


def test_prompt_of_one_token_joins_rows_that_decode(network: nn.Module) -> None:
    row = text(20)
    kv = batch_for(network, 4, KVPlan())
    kv.join(prefilled(network, row))
    kv.join(Prefilled(prefilled(network, [7, 0]).caches, (0,)))
    logits = step(network, kv, [row[-1], 9])
    assert_near(logits[0], alone(network, row))
    assert_near(logits[1], alone(network, [9]))


def test_states_of_a_row_go_on_alone(network: nn.Module) -> None:
    rows = [text(n, n) for n in (30, 12)]
    kv = batch_for(network, 4, KVPlan())
    assert isinstance(kv, LibraryKV)
    assert not kv.keeps_columns
    for row in rows:
        kv.join(prefilled(network, row))
    step(network, kv, [row[-1] for row in rows])
    for place, row in enumerate(rows):
        logits = network(mx.array([[7]]), cache=kv.states(place))[0, -1]
        assert_near(np.array(logits), alone(network, [*row, 7]))


def test_state_of_the_only_row_goes_on_alone(network: nn.Module) -> None:
    row = text(20)
    kv = SoloKV(partial(make_prompt_cache, network))
    kv.join(prefilled(network, row))
    step(network, kv, row[-1:])
    assert not kv.keeps_columns
    logits = network(mx.array([[7]]), cache=kv.states(0))[0, -1]
    assert_near(np.array(logits), alone(network, [*row, 7]))


def test_check_finds_a_row_that_was_left_over(network: nn.Module) -> None:
    kv = batch_for(network, 4, KVPlan())
    for seed in range(2):
        kv.join(prefilled(network, text(9, seed)))
    kept = copy.deepcopy(kv.layers[0])
    kv.leave(0)
    kv.check()
    kv.layers[0] = kept
    with pytest.raises(AssertionError):
        kv.check()


# The worker.


def test_rotating_rows_through_the_worker_equal_rows_alone(sliding_folder: Path) -> None:
    driver = Driver(sliding_folder)
    rows = [submit(f"s{n}", text(n), 8 + n) for n in (4, 30, 11, 50, 20)]
    for row in rows:
        driver.tick(row)
    driver.run()
    for row in rows:
        assert driver.tokens(row.id) == Driver(sliding_folder).alone(row)


def test_model_whose_caches_cannot_merge_gets_one_slot(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxcel.engine.chat.can_batch", lambda network, family: False)
    driver = Driver(tiny)
    rows = [submit(f"o{n}", text(n), 9) for n in (4, 30)]
    driver.run(*rows)
    assert driver.frames[-1].stats.slots == 1
    for row in rows:
        assert driver.tokens(row.id) == Driver(tiny).alone(row)
