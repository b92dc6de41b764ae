"""Which form each layer's KV is kept in: names, families, heads, boundaries, the cap."""

import logging
from collections.abc import Mapping
from typing import Any

import mlx.nn as nn
import pytest
from mlx_lm.models.cache import CacheList, KVCache, RotatingKVCache

from mlxcel.core.errors import StartupError
from mlxcel.engine.kv.modenames import ALIASES, MODES, RECENT, asked_mode
from mlxcel.engine.kv.modes import KVPlan, plan_kv
from tests.tiny.families import COMMON, DEEPSEEK_V3, GEMMA3, LLAMA4, QWEN3_5, network_of

KV = {
    "mode": "fp16",
    "type_k": None,
    "type_v": None,
    "boundary_v_layers": 0,
    "sparse_v_threshold": 1e-6,
    "bits": 0,
    "group_size": 64,
    "scheme": "uniform",
    "skip_last_layer": True,
}


def llama(**config: Any) -> nn.Module:
    return network_of(COMMON | {"model_type": "llama", "head_dim": 64, **config})


def plan(network: nn.Module, family: str = "llama", cap: int = 0, **kv: Any) -> KVPlan:
    return plan_kv(network, family, {"max_kv_size": cap, "kv": KV | kv})


def names(made: KVPlan) -> list[str]:
    return ["plain" if codec is None else codec.name for codec in made.codecs]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return llama()


# Names.


@pytest.mark.parametrize(
    ("mode", "keys", "values"),
    [
        ("fp16", "plain", "plain"),
        ("int8", "int8", "int8"),
        ("fp16+turbo4", "plain", "turbo4"),
        ("turbo4", "turbo4", "turbo4"),
        ("turbo4-delegated", "plain", "turbo4"),
        ("fp16+turbo3", "plain", "turbo3"),
    ],
)
def test_mode_says_what_both_sides_are(mode: str, keys: str, values: str) -> None:
    asked = asked_mode(KV | {"mode": mode})
    assert (asked.name, asked.keys, asked.values) == (mode, keys, values)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("f16", "fp16"),
        ("turbo4-asym", "fp16+turbo4"),
        ("turbo4-sym", "turbo4"),
        ("fp16+turbo4-delegated", "turbo4-delegated"),
        ("turbo3-asym", "fp16+turbo3"),
        ("turbo3", "fp16+turbo3"),
    ],
)
def test_alias_is_the_mode(alias: str, name: str) -> None:
    assert asked_mode(KV | {"mode": alias}) is MODES[name]


@pytest.mark.parametrize(
    ("type_k", "type_v", "name"),
    [
        ("fp16", "fp16", "fp16"),
        ("f16", "f16", "fp16"),
        ("int8", "int8", "int8"),
        ("fp16", "turbo4", "fp16+turbo4"),
        ("f16", "turbo4-asym", "fp16+turbo4"),
        ("turbo4", "turbo4", "turbo4"),
        ("fp16", "turbo4-delegated", "turbo4-delegated"),
        ("fp16", "turbo3", "fp16+turbo3"),
        ("fp16", "turbo3-asym", "fp16+turbo3"),
        (None, "turbo3", "fp16+turbo3"),
        ("fp16", None, "fp16"),
    ],
)
def test_split_types_name_a_mode(type_k: str | None, type_v: str | None, name: str) -> None:
    assert asked_mode(KV | {"type_k": type_k, "type_v": type_v}) is MODES[name]


@pytest.mark.parametrize(
    ("type_k", "type_v"),
    [
        *(
            (name, name)
            for name in ["q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1", "f32", "bf16"]
        ),
        ("int8", "fp16"),
        ("int8", None),
        ("turbo4", "fp16"),
        ("turbo4-asym", "turbo4"),
        ("turbo4", "turbo4-asym"),
        ("turbo3", "turbo3"),
    ],
)
def test_other_pairs_are_refused(type_k: str, type_v: str | None) -> None:
    with pytest.raises(StartupError, match=f"type_k = {type_k} .*there are fp16/fp16"):
        asked_mode(KV | {"type_k": type_k, "type_v": type_v})


def test_name_that_is_no_mode_is_refused_with_those_there_are() -> None:
    with pytest.raises(StartupError) as refused:
        asked_mode(KV | {"mode": "q8_0"})
    assert all(name in str(refused.value) for name in (*MODES, *ALIASES, "q8_0"))


def test_split_types_win_over_the_mode(caplog: pytest.LogCaptureFixture) -> None:
    kv = KV | {"mode": "int8", "type_k": "fp16", "type_v": "turbo4"}
    assert asked_mode(kv).name == "fp16+turbo4"
    assert "wins over cache.kv.mode int8" in caplog.text


def test_spellings_that_agree_cost_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    asked_mode(KV | {"mode": "turbo4-asym", "type_k": "f16", "type_v": "turbo4"})
    asked_mode(KV | {"type_k": "int8", "type_v": "int8"})
    assert not caplog.records


@pytest.mark.parametrize(
    ("kv", "name"),
    [
        ({"bits": 4}, "uniform-4"),
        ({"bits": 8, "group_size": 32}, "uniform-8"),
        ({"bits": 4, "scheme": "turboquant"}, "turboquant-4"),
        ({"bits": 0, "scheme": "turboquant", "group_size": 5}, "fp16"),
    ],
)
def test_bits_ask_for_a_mode_of_their_own(kv: Mapping[str, Any], name: str) -> None:
    assert asked_mode(KV | kv).name == name


@pytest.mark.parametrize(
    ("kv", "words"),
    [
        ({"bits": 2}, "bits = 2"),
        ({"bits": 8, "scheme": "turboquant"}, "turboquant: 4"),
        ({"bits": 4, "scheme": "log"}, "scheme = log"),
        ({"bits": 4, "group_size": 48}, "group_size = 48"),
        ({"bits": 4, "mode": "int8"}, "exclude each other"),
        ({"bits": 8, "type_k": "int8", "type_v": "int8"}, "exclude each other"),
    ],
)
def test_bits_that_are_not_there_are_refused(kv: Mapping[str, Any], words: str) -> None:
    with pytest.raises(StartupError, match=words):
        asked_mode(KV | kv)


# Layers.


def test_full_precision_costs_nothing(network: nn.Module) -> None:
    made = plan(network)
    assert made == KVPlan()
    assert made.layout == "fp16"
    assert made.codec(3) is None


@pytest.mark.parametrize(
    ("edge", "layers"),
    [
        (0, ["plain+turbo4"] * 4),
        (1, ["plain", "plain+turbo4", "plain+turbo4", "plain"]),
    ],
)
def test_first_and_last_layers_keep_their_values(
    network: nn.Module, edge: int, layers: list[str]
) -> None:
    made = plan(network, mode="fp16+turbo4", boundary_v_layers=edge)
    assert (made.effective, names(made)) == ("fp16+turbo4", layers)


def test_keys_of_the_boundary_get_the_mode() -> None:
    made = plan(network_of(QWEN3_5 | {"text_config": _more_layers()}), "qwen3_5", mode="turbo4",
                boundary_v_layers=1)  # fmt: skip
    coded = [name for name in names(made) if name != "plain"]
    assert coded == ["turbo4+plain", "turbo4+turbo4", "turbo4+plain"]


def _more_layers() -> dict[str, Any]:
    return QWEN3_5["text_config"] | {"num_hidden_layers": 6}


def test_boundary_is_for_turbo_alone(network: nn.Module) -> None:
    assert names(plan(network, mode="int8", boundary_v_layers=2)) == ["int8+int8"] * 4


def test_boundary_that_leaves_nothing_is_full_precision(
    network: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan(network, mode="turbo4-delegated", boundary_v_layers=2) == KVPlan()
    assert "no layer of 4 is left" in caplog.text


@pytest.mark.parametrize(("skips", "last"), [(True, "plain"), (False, "affine4/64+affine4/64")])
def test_bits_skip_the_last_layer(network: nn.Module, skips: bool, last: str) -> None:
    made = plan(network, bits=4, skip_last_layer=skips)
    assert names(made) == [*["affine4/64+affine4/64"] * 3, last]
    assert made.effective == "uniform-4"


def test_turboquant_is_turbo_on_both_sides(network: nn.Module) -> None:
    made = plan(network, bits=4, scheme="turboquant", boundary_v_layers=2)
    assert names(made) == [*["turbo4+turbo4"] * 3, "plain"]


def test_delegated_keeps_the_newest_values(network: nn.Module) -> None:
    delegated, asymmetric = (plan(network, mode=m) for m in ("turbo4-delegated", "fp16+turbo4"))
    assert {codec.recent for codec in delegated.codecs if codec} == {RECENT}
    assert {codec.recent for codec in asymmetric.codecs if codec} == {0}


def test_layout_tells_forms_apart(network: nn.Module) -> None:
    assert plan(network, mode="int8").layout == "int8,4xint8+int8"
    made = [
        plan(network, mode="fp16+turbo4"),
        plan(network, mode="fp16+turbo4", boundary_v_layers=1),
        plan(network, mode="fp16+turbo3"),
        *(plan(network, bits=4, group_size=group) for group in (32, 64)),
        plan(network, bits=4, skip_last_layer=False),
    ]
    assert len({one.layout for one in made}) == len(made)


# Heads.


def test_turbo_needs_heads_of_a_power_of_two(caplog: pytest.LogCaptureFixture) -> None:
    assert plan(llama(head_dim=48), mode="fp16+turbo4") == KVPlan()
    assert caplog.text.count("turbo4 does not fit heads of 48") == 1


def test_int8_takes_any_heads() -> None:
    assert names(plan(llama(head_dim=48), mode="int8")) == ["int8+int8"] * 4


def test_group_fits_the_heads(caplog: pytest.LogCaptureFixture) -> None:
    assert set(names(plan(llama(head_dim=96), bits=4))) == {"affine4/32+affine4/32", "plain"}
    assert caplog.text.count("groups of 32 in place of 64") == 1


def test_heads_below_every_group_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    assert plan(llama(head_dim=16), bits=4) == KVPlan()
    assert "affine does not fit heads of 16" in caplog.text


# Families.


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_four_bit_keys_are_for_families_that_stand_them(family: str) -> None:
    assert plan(llama(), family, mode="turbo4").effective == "turbo4"


def test_other_families_get_full_keys(network: nn.Module, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = plan(network, "qwen3", type_k="turbo4", type_v="turbo4")
    assert (made.effective, set(names(made))) == ("fp16+turbo4", {"plain+turbo4"})
    assert "turbo4 -> fp16+turbo4" in caplog.text


@pytest.mark.parametrize(
    "family",
    ["glm4_moe_lite", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_linear",
     "longcat_flash_ngram"],
)  # fmt: skip
def test_latent_attention_stays_as_it_is(family: str, caplog: pytest.LogCaptureFixture) -> None:
    made = plan(network_of(DEEPSEEK_V3), family, mode="int8", cap=64)
    assert made == KVPlan(cap=64)
    assert f"int8 -> fp16: {family} keeps latent vectors" in caplog.text


@pytest.mark.parametrize("kv", [{"mode": "int8"}, {"bits": 4}, {"mode": "turbo3"}])
def test_muse_glimmer_refuses_every_mode(network: nn.Module, kv: Mapping[str, Any]) -> None:
    assert plan(network, "muse_glimmer") == KVPlan()
    with pytest.raises(StartupError, match="muse_glimmer takes fp16 only"):
        plan(network, "muse_glimmer", **kv)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        pytest.param(QWEN3_5, ["plain", "int8+int8"] * 2, id="beside-recurrent-state"),
        pytest.param(GEMMA3, ["plain", "int8+int8"], id="beside-windows"),
        pytest.param(LLAMA4, ["plain", "plain", "plain", "int8+int8"], id="beside-chunks"),
    ],
)
def test_layers_that_attend_to_everything_get_the_mode(
    config: dict[str, Any], layers: list[str]
) -> None:
    assert names(plan(network_of(config), config["model_type"], mode="int8")) == layers


class Caches(nn.Module):
    """A network of which only the caches are of interest."""

    def __init__(self, *caches: object) -> None:
        super().__init__()
        self._caches = caches

    def make_cache(self) -> list[object]:
        return list(self._caches)


@pytest.mark.parametrize(
    ("caches", "why"),
    [
        ([CacheList(KVCache(), KVCache()), KVCache()], "CacheList"),
        ([RotatingKVCache(8)], "no layer that attends to every token"),
        ([KVCache()], "a forward to measure failed"),
    ],
    ids=["lists", "windows-alone", "wants-more-than-tokens"],
)
def test_model_that_cannot_have_the_mode_says_why(
    caches: list[object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan(Caches(*caches), mode="int8") == KVPlan()
    assert "int8 -> fp16" in caplog.text
    assert why in caplog.text


# The cap.


@pytest.mark.parametrize("mode", ["fp16+turbo4", "turbo4-delegated", "turbo3"])
def test_turbo_skips_the_cap(
    network: nn.Module, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan(network, cap=64, mode=mode).cap == 0
    (record,) = [r for r in caplog.records if "max_kv_size" in r.getMessage()]
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize("kv", [{"mode": "int8"}, {"bits": 4}, {"bits": 8}, {}])
def test_other_modes_keep_the_cap(
    network: nn.Module, kv: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert plan(network, cap=64, **kv).cap == 64
    assert not caplog.records


def test_turbo_that_came_to_nothing_keeps_the_cap(network: nn.Module) -> None:
    assert plan(network, cap=64, mode="turbo3", boundary_v_layers=2) == KVPlan(cap=64)
