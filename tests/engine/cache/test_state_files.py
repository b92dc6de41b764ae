"""A state as the arrays of a file, and back: every family's own caches, through a real file."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from mlxcel.engine.cache.disk.arrays import outgoing
from mlxcel.engine.cache.disk.tier import Loaded, Run, arrived
from mlxcel.engine.cache.segment import Layers
from mlxcel.engine.cache.snapshots import Origin
from mlxcel.engine.cache.state_files import (
    NotAState,
    check_kinds,
    kinds_of,
    layout_of,
    packed_state,
    unpacked_state,
)
from mlxcel.engine.cache.states import Kept, State, restored, taken
from tests.engine.cache.disk_runs import LONG_S, key, tier, wait_for
from tests.engine.cache.test_states import (
    CASES,
    CONFIGS,
    bits,
    evaluated,
    families,
    fresh,
    read,
    said,
    state_at,
)
from tests.engine.kv_rows import assert_near, text
from tests.tiny.families import GEMMA3, network_of

PLAIN = kinds_of([KVCache(), RotatingKVCache(8), ArraysCache(2), CacheList(KVCache())])


def through_a_file(folder: Path, state: State, origin: str, family: str) -> tuple[State, Origin]:
    run = Run(key=key(), prefix=(), tokens=tuple(range(state.position)))
    with tier(folder) as made:
        name = made.write(run, packed_state(state, origin))
        wait_for(lambda: made.stats()["queue_bytes"] == 0)
        (loaded,) = made.read([name]).result(LONG_S)
        assert isinstance(loaded, Loaded), loaded.why
        return unpacked_state(arrived(loaded).layers, state.position, kinds_of(fresh(family)))


def told(layers: Layers) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(np.array(layers[0][0]).tobytes())
    return found


def telling(layers: Layers, changed: Any) -> Layers:
    raw = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
    return ((mx.array(np.frombuffer(raw, np.uint8)).reshape(1, 1, -1, 1),), *layers[1:])


def small() -> State:
    """One window of four tokens."""
    cache = RotatingKVCache(8)
    column = mx.arange(8, dtype=mx.float32).reshape(1, 1, 4, 2)
    cache.update_and_fetch(column, column)
    return evaluated(taken([cache], 4))


@pytest.mark.parametrize(("family", "length"), CASES)
def test_state_comes_back_to_the_bit_and_goes_on(tmp_path: Path, family: str, length: int) -> None:
    state = state_at(family, text(length, 1))
    back, origin = through_a_file(tmp_path, state, "boundary", family)
    assert (back.position, origin) == (length, Origin.BOUNDARY)
    assert bits(back) == bits(state)
    assert [kept.kind for kept in back.caches] == [kept.kind for kept in state.caches]
    answer, more = text(6, 2), text(40, 3)
    rows = restored(state), restored(back)
    one, other = (said(family, row, answer) for row in rows)
    assert np.array_equal(one, other)
    one, other = (read(family, row, more) for row in rows)
    assert np.array_equal(one, other)
    cold = read(family, fresh(family), [*text(length, 1), *answer, *more], chunk=11)
    assert_near(other, cold)


@families
def test_what_waits_for_the_disk_stays_as_it_is(family: str) -> None:
    """The store forgets it meanwhile, and rows go on from it."""
    state = state_at(family, text(20, 1))
    before = bits(state)
    plain = outgoing(packed_state(state, "prompt"))
    row = restored(state)
    del state
    said(family, row, text(30, 2))
    read(family, row, text(50, 3))
    assert [array.tobytes() for (array,) in plain[1:]] == before


@families
def test_state_consists_of_what_a_fresh_row_does(family: str) -> None:
    check_kinds(state_at(family, text(5, 1)).caches, kinds_of(fresh(family)))


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32], ids=str)
def test_types_and_shapes_stay(tmp_path: Path, dtype: mx.Dtype) -> None:
    cache = ArraysCache(4)
    cache[0], cache[1] = mx.ones((1, 3, 5), dtype=dtype), mx.array(2.5, dtype=dtype)
    cache[3] = mx.zeros((1, 0, 5), dtype=mx.int32)
    state = evaluated(taken([cache], 3))
    back, _ = through_a_file(tmp_path, state, "prompt", "mamba2")
    assert back.caches[0].fields["cache"][2] is None
    assert [(a.dtype, a.shape) for a in back.arrays()] == [
        (a.dtype, a.shape) for a in state.arrays()
    ]
    assert all(
        bool(mx.array_equal(a, b)) for a, b in zip(back.arrays(), state.arrays(), strict=True)
    )


def test_type_that_files_do_not_have_is_not_packed() -> None:
    cache = ArraysCache(1)
    cache[0] = mx.zeros((1, 2), dtype=mx.complex64)
    with pytest.raises(NotAState, match="complex64"):
        packed_state(taken([cache], 1), "prompt")


# What is not believed.


def with_kind(name: Any) -> Any:
    def change(words: dict[str, Any]) -> Any:
        words["caches"][0]["kind"] = name
        return words

    return change


def with_field(name: str, value: Any) -> Any:
    def change(words: dict[str, Any]) -> Any:
        words["caches"][0]["fields"][name] = value
        return words

    return change


def without_field(words: dict[str, Any]) -> Any:
    del words["caches"][0]["fields"]["max_size"]
    return words


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(with_kind("subprocess:Popen"), "subprocess:Popen", id="foreign-class"),
        pytest.param(
            with_kind("mlx_lm.models.cache:BatchKVCache"), "BatchKVCache", id="class-not-used"
        ),
        pytest.param(with_kind("mlx_lm.models.cache:KVCache"), "no cache of", id="other-class"),
        pytest.param(with_kind(["a"]), "cannot be read", id="class-is-a-list"),
        pytest.param(with_field("update_and_fetch", 1), "update_and_fetch", id="foreign-field"),
        pytest.param(without_field, "no cache of", id="field-missing"),
        pytest.param(with_field("offset", 3), "counts 3 tokens", id="other-position"),
        pytest.param(with_field("keys", {"array": 2}), "cannot be read", id="array-missing"),
        pytest.param(with_field("keys", {"array": "0"}), "cannot be read", id="array-by-name"),
        pytest.param(with_field("keys", {"dict": {}}), "dict where", id="unknown-value"),
        pytest.param(lambda words: words | {"origin": "x"}, "cannot be read", id="origin"),
        pytest.param(lambda words: {"caches": []}, "cannot be read", id="no-origin"),
        pytest.param(lambda words: words | {"caches": [7]}, "cannot be read", id="no-cache"),
        pytest.param(lambda words: b"[" * 100_000, "cannot be read", id="deep"),
        pytest.param(lambda words: b"\xff{", "cannot be read", id="not-json"),
    ],
)
def test_text_that_is_not_this_models_is_told(change: Any, said: str) -> None:
    layers = packed_state(small(), "boundary")
    back, _ = unpacked_state(layers, 4, PLAIN)
    assert bits(back) == bits(small())
    with pytest.raises(NotAState, match=said):
        unpacked_state(telling(layers, change(told(layers))), 4, PLAIN)


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param((), id="nothing"),
        pytest.param(((mx.zeros((1, 1, 4, 1)), mx.zeros((1, 1, 4, 1))),), id="columns"),
        pytest.param(((mx.zeros((1, 1, 4, 1)),),), id="numbers"),
    ],
)
def test_what_is_no_state_is_told(layers: Layers) -> None:
    with pytest.raises(NotAState, match="does not begin"):
        unpacked_state(layers, 4, PLAIN)


def test_list_of_caches_is_checked_through_and_through() -> None:
    inner = Kept(KVCache, {"keys": None, "values": None, "offset": 3})
    state = State((Kept(CacheList, {"caches": (inner,)}),), 3)
    layers = packed_state(state, "prompt")
    back, _ = unpacked_state(layers, 3, PLAIN)
    (part,) = back.caches[0].fields["caches"]
    assert (part.kind, part.fields) == (inner.kind, inner.fields)
    with pytest.raises(NotAState, match="counts 3"):
        unpacked_state(layers, 4, PLAIN)
    words = told(layers)
    del words["caches"][0]["fields"]["caches"]["tuple"][0]["fields"]["keys"]
    with pytest.raises(NotAState, match="no cache of"):
        unpacked_state(telling(layers, words), 3, PLAIN)


def test_class_from_elsewhere_is_no_kind() -> None:
    class Own(KVCache):
        pass

    assert kinds_of([Own()]) == {}
    with pytest.raises(NotAState, match="Own"):
        check_kinds(taken([Own()], 1).caches, PLAIN)


def test_layout_tells_families_and_windows_apart() -> None:
    layouts = {family: layout_of(fresh(family)) for family in CONFIGS}
    assert layout_of(fresh("gemma3")) == layouts["gemma3"]
    wider = network_of(GEMMA3 | {"sliding_window": 64})
    assert layout_of(wider.make_cache()) != layouts["gemma3"]
    assert layouts["gemma3"] != layouts["llama4"] != layouts["mamba2"] != layouts["falcon-h1"]
