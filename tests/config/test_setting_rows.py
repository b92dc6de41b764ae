"""The rows of GET /v1/settings: complete, in order, and without a secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlxcel.config.keys import leaves
from mlxcel.config.schema import rule_of, secrets, section_schema, tree_schema
from mlxcel.config.setting_rows import live_keys, load_rows, owner
from mlxcel.config.settings import SettingsStore
from mlxcel.core.errors import StartupError
from tests.config.live_store import new_store, tree

ROWS = load_rows()
ADAPTER = ("model.lora.adapters=[{path: style, scale: 1.0}]",)
MUTABLE = [row for row in ROWS if row.mutable]


@pytest.fixture
def store() -> SettingsStore:
    return new_store()


@pytest.mark.parametrize("model", ["smollm2", "default", "echo"])
def test_every_leaf_of_the_tree_has_exactly_one_row(model: str) -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    keys = [row.key for row in ROWS if row.key is not None and not row.also]
    assert len(keys) == len(set(keys))
    for key, _ in leaves(tree(f"model={model}")):
        assert owner(key, ROWS) is not None, key


def test_rows_and_schema_agree_on_what_may_change() -> None:
    keys = live_keys(ROWS)
    assert set(keys.values()) == {f"live.{key}" for key, _ in leaves(_live_defaults())}
    schema = section_schema("live")
    for row in MUTABLE:
        rule = rule_of(schema, keys[row.name].removeprefix("live."))
        assert rule is not None
        assert row.type == _type(rule["type"])


def _live_defaults() -> dict[str, Any]:
    live: dict[str, Any] = tree()["live"]
    return live


def _type(kind: str | list[str]) -> str:
    words = {"integer": "int", "number": "float", "string": "str"}
    words |= {same: same for same in ("object", "array")}
    return words[kind] if isinstance(kind, str) else f"{words[kind[0]]}_or_null"


def test_a_row_that_may_be_null_says_so() -> None:
    """The rules of rows that a PATCH may change are compared before."""
    tree_rules = tree_schema(tree())
    for row in ROWS:
        kind = (rule_of(tree_rules, row.key or "none") or {}).get("type")
        if not row.view and isinstance(kind, list) and len(kind) == 2 and "null" in kind:
            assert row.type == _type(kind), row.name


def test_a_row_says_why_exactly_when_it_cannot_be_changed() -> None:
    assert all(bool(row.reason) is not row.mutable for row in ROWS)


def test_a_key_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="none cannot be read"):
        new_store(f"server.api_key_files=['{tmp_path}/none']")


def test_every_secret_has_a_row_that_hides_it() -> None:
    views = {row.key: row.view for row in ROWS if row.key is not None}
    assert all(views[key] in ("secret", "keys") for key in secrets())


def test_no_secret_text_is_in_any_answer(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# comment\nhunter3\n\nhunter4\n")
    store = SettingsStore.from_tree(
        tree("server.api_keys=[hunter2]", f"server.api_key_files=['{file}']", "model.hf_token=hf_x")
    )
    text = json.dumps([store.describe(), store.patch({"api_keys": ["z"]}).current])
    assert "hunter" not in text
    assert "hf_x" not in text
    current = store.describe()["current"]
    assert current["api_keys"] == {"configured": True, "count": 3, "redacted": True}
    assert current["hf_token"] == {"configured": True, "redacted": True}


def test_a_description_has_exactly_three_keys_and_all_names_in_order(store: SettingsStore) -> None:
    body = store.describe()
    assert list(body) == ["schema", "current", "fingerprint"]
    assert [entry["name"] for entry in body["schema"]] == [row.name for row in ROWS]
    assert list(body["current"]) == [row.name for row in ROWS]
    assert json.loads(json.dumps(body)) == body


def test_schema_entries_have_the_keys_of_the_contract(store: SettingsStore) -> None:
    common = {"name", "type", "default", "mutable", "allowed", "help"}
    for entry in store.describe()["schema"]:
        assert set(entry) == (common if entry["mutable"] else common | {"reason"})
        assert entry["help"]


def test_the_default_is_the_value_at_startup() -> None:
    store = new_store("live.sampling.temperature=0.42")
    store.patch({"default_temperature": 0.1})
    body = store.describe()
    [entry] = [e for e in body["schema"] if e["name"] == "default_temperature"]
    assert (entry["default"], body["current"]["default_temperature"]) == (0.42, 0.1)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        pytest.param(("limits.ctx_size=8192",), "context_size", 2048, id="context-per-slot"),
        pytest.param((), "context_size", 0, id="context-of-the-model"),
        pytest.param(("scheduler=serial",), "max_batch_size", 1, id="batch-is-slots"),
        pytest.param(("scheduler.max_batch_size=2",), "max_batch_size", 2, id="batch-size"),
        pytest.param(
            ("limits.ctx_size=8192", "scheduler.max_batch_size=2"),
            "context_size",
            4096,
            id="context-per-row-of-the-batch",
        ),
        pytest.param(
            ("limits.ctx_size=8192", "scheduler=serial"), "context_size", 8192, id="not-divided"
        ),
        pytest.param((), "max_kv_size", None, id="kv-unbounded"),
        pytest.param(("cache.max_kv_size=64",), "max_kv_size", 64, id="kv-bounded"),
        pytest.param((), "kv_cache_budget", "auto", id="budget-auto"),
        pytest.param(("cache.kv_budget=0",), "kv_cache_budget", "none", id="budget-none"),
        pytest.param(("cache.kv_budget=4096",), "kv_cache_budget", "4096", id="budget-bytes"),
        pytest.param((), "decode_storage_backend", "auto", id="storage"),
        pytest.param(
            (),
            "prompt_cache",
            '{"enabled":true,"capacity_bytes":null,"ram_mib":null,"max_entries":1024,'
            '"ttl_secs":3600,"min_prefix":32,"reuse":0}',
            id="prompt-cache",
        ),
        pytest.param((), "kv_cache_mode", "fp16", id="kv-mode"),
        pytest.param(
            ("cache.kv.bits=8",),
            "batch_kv_quant",
            '{"type_k":null,"type_v":null,"boundary_v_layers":2,"sparse_v_threshold":1e-06,'
            '"bits":8,"group_size":64,"scheme":"uniform","skip_last_layer":true}',
            id="kv-bits",
        ),
        pytest.param((), "slot_save_path", None, id="no-slot-files"),
        pytest.param(("cache.slot_save_path=/s",), "slot_save_path", "/s", id="slot-files"),
        pytest.param(("cache.context_shift=true",), "context_shift", True, id="context-shift"),
        pytest.param(("cache.keep=-1",), "n_keep", -1, id="kept-by-a-shift"),
        pytest.param(
            ("generation.prefill_assistant=false",), "no_prefill_assistant", True, id="negated"
        ),
        pytest.param((), "reasoning_alias_field", "reasoning", id="alias-field"),
        pytest.param(
            ("generation.reasoning.alias_field=null",),
            "reasoning_alias_field",
            "none",
            id="no-alias-field",
        ),
        pytest.param((), "lora_adapters", {"count": 0}, id="no-adapters"),
        pytest.param((), "lora_runtime", {"unfused": False}, id="nothing-to-scale"),
        pytest.param(ADAPTER, "lora_adapters", {"count": 1}, id="one-adapter"),
        pytest.param(ADAPTER, "lora_runtime", {"unfused": True}, id="unfused"),
        pytest.param(
            (*ADAPTER, "model.lora.fuse=true"), "lora_runtime", {"unfused": False}, id="fused"
        ),
        pytest.param(
            ("generation.sampling.logit_bias=[[5,'-inf'],[6,1.5]]",),
            "default_logit_bias",
            [[5, "-inf"], [6, 1.5]],
            id="banned-token",
        ),
        pytest.param((), "preemption_policy", "longest-first", id="policy"),
        pytest.param((), "model_is_gemma4_family", False, id="family-not-known"),
        pytest.param(("server.sse_ping_interval=-1",), "sse_ping_interval", None, id="no-pings"),
        pytest.param(("model.alias=[b,a,b]",), "model_aliases", ["a", "b"], id="aliases-sorted"),
        pytest.param(("model.alias=[b,a]",), "model_alias", "a", id="first-alias"),
        pytest.param((), "model_alias", None, id="no-alias"),
        pytest.param((), "prefill_chunk_size", None, id="chunk-of-the-backend"),
        pytest.param(
            ("routes.settings=false",), "enable_settings_endpoint", False, id="settings-off"
        ),
        pytest.param(
            ("scheduler.clear_interval=7",),
            "scheduler",
            '{"mixed_step":false,"lookahead":true,"clear_interval":7}',
            id="block",
        ),
    ],
)
def test_views(words: tuple[str, ...], name: str, value: object) -> None:
    assert new_store(*words).describe()["current"][name] == value
