"""The test list of the settings contract, over HTTP and the real store: who may read and change,
what is taken, what is refused, and in which words."""

import json
from typing import Any

import httpx
import pytest
import pytest_asyncio

from mlxcel.config.live_rules import live_rules
from mlxcel.config.setting_rows import load_rows
from mlxcel.config.settings import SettingsStore
from tests.config.live_store import new_store, tree
from tests.http.site import Site, Start

pytestmark = pytest.mark.asyncio
PATHS = ("/v1/settings", "/settings")
KEY = "a-key-nobody-guesses"
LOOP = {"max_pattern_size": 9, "min_pattern_size": 1, "min_count": 3}
BIAS = {
    "bias_set": {"ordered": [["ja", -5.0]]},
    "policy": "Strict",
    "exceptions": {
        "include_special": False,
        "include_numeric": True,
        "include_punctuation": False,
        "include_byte_fragments": False,
    },
    "rebuild_cache": False,
}
LANGUAGES = ("ja", "zh", "ko", "en", "ru", "ar", "th", "hi", "he", "el")
BOUNDS: dict[str, tuple[Any, Any, Any]] = {
    "timeout_seconds": (77, 1, 0),
    "default_temperature": (0.25, 0.0, -1e-9),
    "default_top_p": (0.5, 1.0, 1.0000001),
    "default_top_k": (7, 0, -1),
    "default_min_p": (0.5, 1.0, 1.0000001),
    "default_repetition_penalty": (1.5, -1e300, None),
    "default_repetition_context_size": (9, 0, -1),
    "default_max_tokens": (3, 1, 0),
    "default_seed": (7, 0, -1),
    "default_frequency_penalty": (0.5, -1e300, "0.5"),
    "default_presence_penalty": (0.5, 1e300, True),
    "default_dry_multiplier": (0.5, 0.0, -1e-9),
    "default_dry_base": (2.5, 1.0, 0.9999999),
    "default_dry_allowed_length": (3, 0, -1),
    "default_dry_penalty_last_n": (9, 0, -1),
    "default_dry_sequence_breakers": (["."], [], [7]),
    "lang_bias_config": (BIAS, None, {**BIAS, "policy": "Mild"}),
    "reasoning_budget": (5, -1, -2),
    "chat_template_kwargs": ({"a": {"b": [1, None]}}, {}, []),
    "loop_detection": (LOOP, {**LOOP, "max_pattern_size": 0}, {**LOOP, "min_count": -1}),
}
"""Of each name a value inside its bounds, one on a bound, one outside."""
INSIDE, ON, OUTSIDE = (
    {name: values[which] for name, values in BOUNDS.items()} for which in range(3)
)
OTHER_ENDS: dict[str, Any] = {
    "default_top_p": 5e-324,
    "default_top_k": 2**31 - 1,
    "default_min_p": 0.0,
    "default_seed": 2**64 - 1,
    "reasoning_budget": 2**31 - 1,
    "lang_bias_config": {
        **BIAS, "bias_set": {"ordered": [[code, "-inf"] for code in LANGUAGES]},
    },
}  # fmt: skip
"""The bounds on the other side."""


@pytest_asyncio.fixture
async def live(start: Start) -> Site:
    return await start(settings=new_store())


async def read(site: Site, path: str = PATHS[0]) -> dict[str, Any]:
    answer: dict[str, Any] = (await site.http.get(path)).json()
    return answer


async def patch(site: Site, body: object, path: str = PATHS[0]) -> dict[str, Any]:
    response = await site.http.patch(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def sent(site: Site, text: str) -> httpx.Response:
    """A PATCH whose JSON is written by hand."""
    headers = {"Content-Type": "application/json"}
    return await site.http.patch(PATHS[0], content=text.encode(), headers=headers)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_a_key_is_asked_for_where_one_is_configured(
    start: Start, path: str, method: str
) -> None:
    site = await start(settings=new_store(f"server.api_keys=[{KEY}]"), api_keys=[KEY])
    body = {"json": {}} if method == "PATCH" else {}
    assert (await site.http.request(method, path, **body)).status_code == 401
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = await site.http.request(method, path, headers=headers, **body)
    assert answer.status_code == 200
    assert KEY not in answer.text
    assert answer.json()["current"]["api_keys"] == {
        "configured": True, "count": 1, "redacted": True,
    }  # fmt: skip


async def test_the_routes_are_gone_when_switched_off(start: Start) -> None:
    site = await start(settings=new_store(), routes={"settings": False})
    for path in PATHS:
        assert (await site.http.get(path)).status_code == 404
        assert (await site.http.patch(path, json={})).status_code == 404


async def test_the_request_of_the_contract(live: Site) -> None:
    before = await read(live)
    body = {
        "default_seed": 7,
        "default_temperature": 0.25,
        "default_top_p": "wide",
        "mystery_knob": True,
        "reasoning_alias_field": "none",
        "timeout_seconds": 0,
    }
    answer = await patch(live, body, "/settings")
    assert list(answer) == ["applied", "rejected", "current", "fingerprint"]
    assert answer["applied"] == {"default_seed": 7, "default_temperature": 0.25}
    assert answer["rejected"] == [
        {"name": "default_top_p", "reason": "default_top_p wants a number, got string"},
        {"name": "mystery_knob", "reason": "unknown setting"},
        {
            "name": "reasoning_alias_field",
            "reason": "read-only: not live-changeable; restart required",
        },
        {"name": "timeout_seconds", "reason": "timeout_seconds must be above zero"},
    ]
    assert answer["fingerprint"] != before["fingerprint"]
    assert answer["current"] == {**before["current"], **answer["applied"]}
    after = await read(live, "/v1/settings")
    assert (after["current"], after["fingerprint"]) == (answer["current"], answer["fingerprint"])
    assert after["schema"] == before["schema"]


async def test_the_bounds_are_of_every_name_that_may_change(live: Site) -> None:
    schema = (await read(live))["schema"]
    assert {entry["name"] for entry in schema if entry["mutable"]} == set(BOUNDS)


@pytest.mark.parametrize("values", [INSIDE, ON, OTHER_ENDS], ids=["inside", "on", "other-ends"])
async def test_a_value_inside_or_on_its_bound_is_taken(live: Site, values: dict[str, Any]) -> None:
    answer = await patch(live, values)
    assert (answer["applied"], answer["rejected"]) == (values, [])
    current = (await read(live))["current"]
    assert {name: current[name] for name in values} == values


async def test_a_value_outside_is_refused_and_named(live: Site) -> None:
    before = await read(live)
    answer = await patch(live, OUTSIDE)
    assert answer["applied"] == {}
    assert [entry["name"] for entry in answer["rejected"]] == list(OUTSIDE)
    for entry in answer["rejected"]:
        assert entry["reason"].startswith(entry["name"])
    assert await read(live) == before


NULLABLE = ("default_seed", "lang_bias_config", "loop_detection")


async def test_null_is_a_value_of_three_names_alone(live: Site) -> None:
    answer = await patch(live, dict.fromkeys(BOUNDS))
    assert answer["applied"] == dict.fromkeys(NULLABLE)
    assert {entry["name"] for entry in answer["rejected"]} == set(BOUNDS) - set(NULLABLE)
    assert all(entry["reason"].endswith(", got null") for entry in answer["rejected"])


async def test_replace_brings_every_name_back(live: Site) -> None:
    before = await read(live)
    changed = await patch(live, INSIDE)
    same = [n for n in BOUNDS if changed["current"][n] == before["current"][n]]
    assert same == []
    await patch(live, {"op": "replace", "values": {}})
    assert await read(live) == before


async def test_replace_refuses_a_name_and_takes_it_back_to_startup(live: Site) -> None:
    start = (await read(live))["current"]
    await patch(live, {"default_min_p": 0.5, "default_seed": 3})
    values = {"default_top_k": 20, "default_min_p": 7}
    answer = await patch(live, {"op": "replace", "values": values})
    assert answer["applied"] == {"default_top_k": 20}
    assert [entry["name"] for entry in answer["rejected"]] == ["default_min_p"]
    assert answer["current"] == {**start, "default_top_k": 20}


async def test_the_order_of_two_patches_does_not_show_in_the_fingerprint(start: Start) -> None:
    ends = []
    for order in ((INSIDE, OTHER_ENDS), (OTHER_ENDS, INSIDE)):
        site = await start(settings=new_store())
        own = [{n: v for n, v in values.items() if n not in OTHER_ENDS} for values in order]
        ends.append([(await patch(site, values))["fingerprint"] for values in own][-1])
    assert ends[0] == ends[1]


async def test_max_tokens_fit_the_context_size_where_there_is_one(start: Start, live: Site) -> None:
    site = await start(settings=new_store("limits.ctx_size=4096", "scheduler.parallel=4"))
    assert (await read(site))["current"]["context_size"] == 1024
    answer = await patch(site, {"default_max_tokens": 1024})
    assert answer["applied"] == {"default_max_tokens": 1024}
    [refused] = (await patch(site, {"default_max_tokens": 1025}))["rejected"]
    assert refused["reason"] == "default_max_tokens must be at most 1024"
    assert (await read(live))["current"]["context_size"] == 0
    assert (await patch(live, {"default_max_tokens": 1025}))["rejected"] == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param([1], "got array", id="array"),
        pytest.param(None, "got null", id="null"),
        pytest.param("x", "got string", id="string"),
        pytest.param({"op": "swap", "values": {}}, '"merge" or "replace"', id="op"),
        pytest.param({"op": "merge"}, "needs the key values", id="no-values"),
        pytest.param({"values": [1]}, "got array", id="values-array"),
        pytest.param({"values": None}, "got null", id="values-null"),
        pytest.param(
            {"op": "merge", "values": {}, "why": 1, "also": 2}, "also, why", id="third-key"
        ),
        pytest.param({"values": {}, "atomic": "yes"}, "got string", id="atomic-type"),
        pytest.param({"op": "merge", "default_seed": 1}, "default_seed", id="flat-with-op"),
    ],
)
async def test_a_body_of_another_shape_changes_nothing(live: Site, body: Any, words: str) -> None:
    before = await read(live)
    response = await sent(live, json.dumps(body))
    assert response.status_code == 400
    assert list(response.json()) == ["error"]
    assert words in response.json()["error"]
    assert await read(live) == before


async def test_an_update_that_breaks_off_is_told_and_changes_nothing(start: Start) -> None:
    """A clock that fails stands for whatever may: the change is made up, not yet published."""

    def stopped() -> float:
        raise OSError("the clock stands still")

    rows = load_rows()
    store = SettingsStore(tree(), rows, live_rules(rows, tree()), clock=stopped)
    site = await start(settings=store)
    before = await read(site)
    response = await site.http.patch(PATHS[0], json={"default_seed": 5})
    assert (response.status_code, response.json()) == (500, {"error": "settings update failed"})
    assert await read(site) == before
    assert (await site.http.get(f"{PATHS[0]}/history")).json()["history"] == []
    assert (await patch(site, {}))["fingerprint"] == before["fingerprint"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        pytest.param("default_top_k", "7.0", "wants an integer, got number 7.0", id="float"),
        pytest.param("default_max_tokens", "1e2", "wants an integer, got number 100", id="power"),
        pytest.param("default_seed", "7.0", "wants an integer or null, got number", id="seed"),
        pytest.param(
            "default_seed", str(2**64), f"must be at most {2**64 - 1}", id="above-64-bits"
        ),
        pytest.param("default_temperature", "true", "wants a number, got boolean", id="boolean"),
        pytest.param("chat_template_kwargs", '{"a": "${live}"}', "${", id="interpolation"),
        pytest.param("chat_template_kwargs", '{"a": ["???"]}', "???", id="missing"),
        pytest.param("default_dry_sequence_breakers", '["${a}"]', "${", id="breaker"),
    ],
)
async def test_what_json_can_spell_and_a_name_cannot_take(
    live: Site, name: str, text: str, words: str
) -> None:
    before = await read(live)
    response = await sent(live, f'{{"{name}": {text}}}')
    [refused] = response.json()["rejected"]
    assert refused["name"] == name
    assert words in refused["reason"]
    assert await read(live) == before


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"default_seed": %s}' % ("9" * 400), id="beyond-a-double"),
        pytest.param('{"default_temperature": 1e999}', id="infinite"),
        pytest.param('{"default_temperature": NaN}', id="not-a-number"),
        pytest.param('{"chat_template_kwargs": {"a": "\\ud800"}}', id="half-a-character"),
    ],
)
async def test_what_no_value_of_json_can_be(live: Site, text: str) -> None:
    before = await read(live)
    response = await sent(live, text)
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert await read(live) == before


@pytest.mark.parametrize(
    "kwargs",
    [
        pytest.param({"größe": "日本語 🦆 ‮ \u0000 \t"}, id="unicode"),
        pytest.param({"${live}": "$", "a.b": "{y}", "": {"": ""}}, id="names"),
        pytest.param({"a": 2**63, "b": -(2**63), "c": 2**64 - 1}, id="big-integers"),
        pytest.param({"a": 1.0, "b": 1, "c": True, "d": 1e-300}, id="number-types"),
        pytest.param({"_target_": "os.system", "_args_": ["x"]}, id="words-of-hydra"),
    ],
)
async def test_template_kwargs_are_kept_as_they_came(live: Site, kwargs: dict[str, Any]) -> None:
    answer = await patch(live, {"chat_template_kwargs": kwargs})
    assert repr(answer["applied"]["chat_template_kwargs"]) == repr(kwargs)
    assert repr((await read(live))["current"]["chat_template_kwargs"]) == repr(kwargs)
    await live.post()
    assert dict(live.generator.requests[-1].settings.template_kwargs) == kwargs


async def test_a_name_in_other_letters_is_unknown(live: Site) -> None:
    for name in ("Default_Seed", "default_seed ", "defaultséed", "", "live.sampling.seed"):
        [refused] = (await patch(live, {name: 1}))["rejected"]
        assert refused == {"name": name, "reason": "unknown setting"}
