"""Sampling fields of a native completion, and how the answer repeats what was used."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.sampling import AdaptiveP, Dry, DynamicTemperature, Mirostat
from mlxcel.core.settings import FixedDefaults
from mlxcel.protocols.llama.samplers import ORDER
from mlxcel.protocols.llama.settings import settings_body
from tests.protocols.llama.reading import DRAWN, completion_read
from tests.protocols.samples import RULES, SETTINGS

NONE = FixedDefaults()
FIXED = FixedDefaults(
    typical_p=0.9,
    top_n_sigma=1.5,
    xtc_probability=0.5,
    xtc_threshold=0.2,
    mirostat_version=2,
    mirostat_target=4.0,
    mirostat_rate=0.2,
    temperature_span=0.5,
    temperature_exponent=2.0,
    names_adaptive=True,
    adaptive_target=0.6,
    adaptive_decay=0.8,
    ignore_eos=True,
    stop=("###",),
)


def sampled(fixed: FixedDefaults = RULES.fixed, **fields: Any) -> Any:
    return completion_read(rules=replace(RULES, fixed=fixed), **fields).request.sampling


def test_left_out_fields_come_from_the_settings_and_the_server() -> None:
    found = sampled(FIXED)
    assert found.mirostat == Mirostat(version=2, rate=0.2, target=4.0)
    assert found.dynamic_temperature == DynamicTemperature(span=0.5, exponent=2.0)
    assert found.adaptive == AdaptiveP(target=0.6, decay=0.8)
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.8, 40, 0.95, 0.05)
    assert (found.typical_p, found.top_n_sigma) == (0.9, 1.5)
    assert (found.xtc_probability, found.xtc_threshold) == (0.5, 0.2)
    assert (found.min_keep, found.seed) == (0, DRAWN)


def test_without_such_defaults_all_of_it_is_off() -> None:
    found = sampled()
    assert (found.mirostat, found.dynamic_temperature, found.adaptive, found.dry) == (None,) * 4


ARMED = {"samplers": "edskypmxta"}
VALUES: list[tuple[dict[str, Any], str, Any]] = [
    ({"temperature": -1}, "temperature", 0.0),
    ({"temperature": 1e300}, "temperature", 1e5),
    ({"top_k": -1}, "top_k", 0),
    ({"top_k": 2**60}, "top_k", 2**31 - 1),
    ({"top_p": 1.5}, "top_p", 1.0),
    ({"min_p": -1}, "min_p", 0.0),
    ({"typical_p": 0.5}, "typical_p", 0.5),
    ({"typical_p": 0}, "typical_p", 1.0),
    ({"typical_p": -3}, "typical_p", 1.0),
    ({"typical_p": 7}, "typical_p", 1.0),
    ({"top_n_sigma": 2}, "top_n_sigma", 2.0),
    ({"top_n_sigma": -1}, "top_n_sigma", 0.0),
    ({"top_n_sigma": 1e300}, "top_n_sigma", 1e6),
    ({"top_n_sigma": float("inf")}, "top_n_sigma", 0.0),
    ({"xtc_probability": 7}, "xtc_probability", 1.0),
    ({"xtc_probability": -7}, "xtc_probability", 0.0),
    ({"xtc_threshold": 0.7}, "xtc_threshold", 0.7),
    ({"xtc_threshold": 7}, "xtc_threshold", 1.0),
    ({"repeat_penalty": 0}, "repetition_penalty", 1.0),
    ({"repeat_penalty": 1.2}, "repetition_penalty", 1.2),
    ({"repetition_penalty": 1.2}, "repetition_penalty", 1.0),
    ({"repeat_last_n": 9999}, "penalty_window", 4096),
    ({"presence_penalty": 1}, "presence_penalty", 1.0),
    ({"frequency_penalty": 1e9}, "frequency_penalty", 1e3),
    ({"mirostat": 1}, "mirostat", Mirostat(version=1, rate=0.1, target=5.0)),
    (
        {"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.5},
        "mirostat",
        Mirostat(version=2, rate=0.5, target=3.0),
    ),
    ({"mirostat_tau": 3}, "mirostat", None),
    ({"dynatemp_range": 0.5}, "dynamic_temperature", DynamicTemperature(span=0.5, exponent=1.0)),
    ({"dynatemp_range": -1}, "dynamic_temperature", None),
    ({"dynatemp_exponent": 2}, "dynamic_temperature", None),
    ({"min_keep": 3}, "min_keep", 3),
    ({"dry_multiplier": 0.8}, "dry", Dry(multiplier=0.8, base=1.75, allowed_length=2, window=64)),
    ({"dry_multiplier": 0.8, "dry_penalty_last_n": 0}, "dry", None),
    ({"adaptive_target": 0.5}, "adaptive", None),
    ({"samplers": "edskypmxta"}, "adaptive", None),
    (ARMED | {"adaptive_target": 0.5}, "adaptive", AdaptiveP(target=0.5, decay=0.9)),
    (ARMED | {"adaptive_target": 7}, "adaptive", AdaptiveP(target=1.0, decay=0.9)),
    (ARMED | {"adaptive_target": -0.1}, "adaptive", None),
    ({"samplers": "edskypmxt", "adaptive_target": 0.5}, "adaptive", None),
    ({"seed": -1}, "seed", DRAWN),
    ({"seed": 2**32 - 1}, "seed", DRAWN),
    ({"seed": -2}, "seed", 2**32 - 2),
    ({"seed": 2**32 + 5}, "seed", 5),
]


@pytest.mark.parametrize(("sent", "name", "used"), VALUES, ids=lambda item: str(item)[:40])
def test_a_sent_value_is_used_or_the_nearest_that_can_be(
    sent: dict[str, Any], name: str, used: Any
) -> None:
    assert getattr(sampled(**sent), name) == used


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ({"mirostat": 0}, "mirostat"),
        ({"dynatemp_range": 0}, "dynamic_temperature"),
        ({"samplers": "edskypmxt"}, "adaptive"),
    ],
    ids=["mirostat", "dynatemp", "adaptive"],
)
def test_what_the_server_has_on_a_request_switches_off(sent: dict[str, Any], name: str) -> None:
    assert getattr(sampled(FIXED, **sent), name) is None


def test_a_request_fills_in_from_the_server() -> None:
    found = sampled(FIXED, mirostat=1, dynatemp_range=1, samplers="edskypmxta", adaptive_target=0.1)
    assert found.mirostat == Mirostat(version=1, rate=0.2, target=4.0)
    assert found.dynamic_temperature == DynamicTemperature(span=1.0, exponent=2.0)
    assert found.adaptive == AdaptiveP(target=0.1, decay=0.8)


def test_values_of_the_server_wait_for_a_request_that_switches_them_on() -> None:
    off = replace(FIXED, mirostat_version=0, temperature_span=0.0, names_adaptive=False)
    left = sampled(off)
    assert (left.mirostat, left.dynamic_temperature, left.adaptive) == (None,) * 3
    found = sampled(off, mirostat=1, dynatemp_range=1, samplers="edskypmxta")
    assert found.mirostat == Mirostat(version=1, rate=0.2, target=4.0)
    assert found.dynamic_temperature == DynamicTemperature(span=1.0, exponent=2.0)
    assert found.adaptive == AdaptiveP(target=0.6, decay=0.8)
    body = settings_body(completion_read(rules=replace(RULES, fixed=off)).request, off)
    assert (body["mirostat"], body["mirostat_tau"], body["mirostat_eta"]) == (0, 4.0, 0.2)
    assert (body["dynatemp_range"], body["dynatemp_exponent"]) == (0.0, 2.0)
    assert (body["adaptive_target"], body["adaptive_decay"]) == (-1.0, 0.8)


def test_adaptive_named_by_the_server_waits_for_a_target() -> None:
    named = replace(FIXED, adaptive_target=-1.0)
    assert sampled(named).adaptive is None
    assert sampled(named, adaptive_target=0.3).adaptive == AdaptiveP(target=0.3, decay=0.8)


@pytest.mark.parametrize(
    "sent",
    [list(ORDER), [*ORDER, "adaptive_p"], "edskypmxt", "edskypmxta", ";".join(ORDER)],
    ids=["names", "names-and-adaptive", "letters", "letters-and-adaptive", "flag"],
)
def test_the_fixed_order_may_be_named(sent: Any) -> None:
    completion_read(samplers=sent)


@pytest.mark.parametrize(
    "sent",
    [
        [],
        ["top_k"],
        list(reversed(ORDER)),
        "",
        "kypmt",
        ["adaptive_p", *ORDER],
        "aedskypmxt",
        7,
        {},
    ],
    ids=["empty", "one", "reversed", "no-letters", "other", "first", "first-letter", "int", "map"],
)
def test_any_other_order_is_refused(sent: Any) -> None:
    with pytest.raises(BadField, match="samplers: the order is fixed: edskypmxt"):
        completion_read(samplers=sent)


def test_breakers_are_texts() -> None:
    assert completion_read().request.dry_breakers == ("\n", ":", '"', "*")
    assert completion_read(dry_sequence_breakers=["x", "y"]).request.dry_breakers == ("x", "y")


def test_stops_and_the_end_come_from_the_server() -> None:
    rules = replace(RULES, fixed=FIXED)
    left, sent = (
        completion_read(rules=rules),
        completion_read(rules=rules, stop="x", ignore_eos=False),
    )
    assert (left.request.stop, left.request.ignore_eos) == (("###",), True)
    assert (sent.request.stop, sent.request.ignore_eos) == (("x",), False)


KEYS = (
    "seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma "
    "xtc_probability xtc_threshold typical_p repeat_last_n repeat_penalty presence_penalty "
    "frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
    "dry_sequence_breakers mirostat mirostat_tau mirostat_eta adaptive_target adaptive_decay stop "
    "max_tokens n_predict n_keep n_discard ignore_eos stream logit_bias n_probs min_keep "
    "post_sampling_probs grammar grammar_lazy grammar_triggers preserved_tokens samplers "
    "timings_per_token lora"
)


def test_the_settings_have_the_names_of_the_contract() -> None:
    request = completion_read(lora=[{"id": 0, "scale": 0.5}]).request
    assert set(settings_body(request, NONE)) == set(KEYS.split())
    assert "lora" not in settings_body(completion_read().request, NONE)


SENT: dict[str, Any] = {
    "seed": 7,
    "temperature": 0.5,
    "dynatemp_range": 0.25,
    "dynatemp_exponent": 2.0,
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.25,
    "top_n_sigma": 2.0,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.25,
    "typical_p": 0.75,
    "repeat_last_n": 9,
    "repeat_penalty": 1.5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "dry_multiplier": 0.5,
    "dry_base": 1.5,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 10,
    "dry_sequence_breakers": ["a", "b"],
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.25,
    "adaptive_target": 0.5,
    "adaptive_decay": 0.5,
    "stop": ["x"],
    "n_predict": 5,
    "n_keep": 6,
    "n_discard": 7,
    "ignore_eos": True,
    "logit_bias": [[4, False], [5, 1.5], ["ab", 2.0]],
    "n_probs": 2,
    "min_keep": 4,
    "post_sampling_probs": True,
    "grammar": "root ::= [a-z]+",
    "grammar_lazy": True,
    "grammar_triggers": [
        {"type": 0, "value": "", "token": 9},
        {"type": 1, "value": "<t>"},
        {"type": 2, "value": "a+"},
        {"type": 3, "value": "b+"},
    ],
    "preserved_tokens": ["<t>"],
    "samplers": [*ORDER, "adaptive_p"],
    "lora": [{"id": 1, "scale": 0.5}],
}


def test_the_settings_repeat_what_was_sent() -> None:
    body = settings_body(completion_read(**SENT).request, NONE)
    assert body == SENT | {"max_tokens": 5, "stream": False, "timings_per_token": False}


def test_the_settings_sent_back_ask_for_the_same() -> None:
    request = completion_read(**SENT).request
    body = {k: v for k, v in settings_body(request, NONE).items() if k != "max_tokens"}
    assert completion_read(**body).request == request


def test_a_seed_that_was_drawn_is_not_told() -> None:
    read = completion_read()
    assert read.shape.is_seed_random
    assert settings_body(read.request, NONE, is_seed_random=True)["seed"] == 2**32 - 1
    assert not completion_read(seed=7).shape.is_seed_random
    fixed = replace(SETTINGS, sampling=replace(SETTINGS.sampling, seed=11))
    assert not completion_read(settings=fixed).shape.is_seed_random
    assert completion_read(settings=fixed).request.sampling.seed == 11
    assert completion_read(settings=fixed, seed=-1).shape.is_seed_random
