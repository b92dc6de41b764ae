"""The 107 names of the contract: all there, in its order, each of its type and class."""

import pytest

from mlxcel.config.setting_rows import Row, load_rows
from mlxcel.config.settings import SettingsStore
from tests.config.live_store import new_store

CONTRACT = """
gcp str R
reasoning_format str U
reasoning_alias_field str U
skip_chat_parsing bool U
no_prefill_assistant bool I
reasoning_budget_message str_or_null I
api_keys object R
timeout_seconds int live
sleep_idle_seconds int W
api_prefix str R
sse_ping_interval int_or_null U
model_alias str_or_null M
model_aliases array M
context_size int M
n_parallel int M
enable_slots_endpoint bool R
enable_props_endpoint bool R
enable_metrics_endpoint bool R
enable_settings_endpoint bool R
slot_save_path str_or_null M
model_tags array M
lora_adapters object M
lora_runtime object M
embd_normalize int_or_null U
embedding_serving_mode str M
spm_infill bool U
default_temperature float live
default_top_p float live
default_top_k int live
default_min_p float live
default_typical_p float U
default_top_n_sigma float U
default_xtc_probability float U
default_xtc_threshold float U
default_ignore_eos bool U
default_stop_sequences array U
default_repetition_penalty float live
default_repetition_context_size int live
default_max_tokens int live
default_seed int_or_null live
default_frequency_penalty float live
default_presence_penalty float live
default_dry_multiplier float live
default_dry_base float live
default_dry_allowed_length int live
default_dry_penalty_last_n int live
default_dry_sequence_breakers array live
default_grammar str_or_null U
default_mirostat int U
default_mirostat_tau float U
default_mirostat_eta float U
default_dynatemp_range float U
default_dynatemp_exponent float U
default_adaptive_target float U
default_adaptive_decay float U
default_adaptive_p_named bool U
default_logit_bias array U
draft_model_path str_or_null W
num_draft_tokens int W
draft_kind str_or_null W
draft_block_size int_or_null W
max_batch_size int S
max_queue_depth int S
audio_queue_depth int S
audio_request_timeout_secs int S
embedding_model_path str_or_null M
embedding_batch_size int S
embedding_max_length int_or_null S
embedding_queue_depth int S
embedding_request_timeout_secs int S
reranker_model_path str_or_null M
rerank_batch_size int S
prefill_chunk_size int S
prefill_grant_interval int_or_null S
enable_preemption bool S
preemption_policy str S
no_batch bool S
max_batch_prefill int S
max_batch_prefill_tokens int_or_null S
decode_storage_backend str S
pipeline_parallel_runtime str D
remote_pipeline_stage str D
tensor_parallel str D
vision_cache_size int S
video_max_frames int S
video_fps float S
lang_bias_config object_or_null live
reasoning_budget int live
chat_template_kwargs object live
prompt_cache str S
kv_cache_mode str S
batch_kv_quant str S
max_kv_size int_or_null S
context_shift bool S
n_keep int S
kv_cache_budget str S
enable_vlm_prefix_cache bool S
cors_policy str R
serving_mode str D
prefill_peers array D
decode_peers array D
serving_bind str_or_null D
max_denoising_steps int_or_null live
diffusion_sampler str live
diffusion_threshold float live
loop_detection object_or_null live
model_is_gemma4_family bool M
"""
"""Name, type, and why a PATCH cannot change it; `live`: it can."""
OTHER = {
    # Applied here, where the product only accepts them.
    "no_prefill_assistant": ("bool", "U"),
    "reasoning_budget_message": ("str_or_null", "U"),
    # Null: the worker chooses by its device, which is not known here.
    "prefill_chunk_size": ("int_or_null", "S"),
    # No diffusion model is served: what takes a value must use it.
    "max_denoising_steps": ("int_or_null", "M"),
    "diffusion_sampler": ("str", "M"),
    "diffusion_threshold": ("float", "M"),
}
"""Where this server differs, and why."""
CLASSES = {
    "R": "route layout or access policy is set at startup",
    "S": "scheduler or queue geometry is set at startup",
    "W": "owned by the model worker",
    "M": "tied to the loaded model",
    "D": "distributed or pipeline topology is set at startup",
    "U": "not live-changeable",
}
TABLE = [tuple(line.split()) for line in CONTRACT.strip().splitlines()]
ROWS = load_rows()
LACKING = [row for row in ROWS if row.key is None]


@pytest.fixture(scope="module")
def store() -> SettingsStore:
    """As a plan gives it: what `auto` means is decided."""
    return new_store("routes.settings=true")


def test_every_name_of_the_contract_is_there_in_its_order() -> None:
    assert len(TABLE) == 107
    assert [row.name for row in ROWS][:107] == [name for name, _, _ in TABLE]


def _class(row: Row) -> str:
    if row.mutable:
        return "live"
    [letter] = [letter for letter, words in CLASSES.items() if row.reason.startswith(f"{words}; ")]
    return letter


@pytest.mark.parametrize(("name", "kind", "letter"), TABLE, ids=[name for name, _, _ in TABLE])
def test_a_name_has_the_type_and_class_of_the_contract(name: str, kind: str, letter: str) -> None:
    [row] = [row for row in ROWS if row.name == name]
    assert (row.type, _class(row)) == OTHER.get(name, (kind, letter))
    assert "restart" in (row.reason or "restart")


def test_23_names_are_mutable_but_for_those_of_diffusion() -> None:
    live = [name for name, _, letter in TABLE if letter == "live"]
    ours = [row.name for row in ROWS if row.mutable]
    assert len(live) == 23
    assert [name for name in live if name not in OTHER] == ours


def test_what_is_shown_is_of_its_type(store: SettingsStore) -> None:
    current = store.describe()["current"]
    for row in ROWS:
        assert _is_of(current[row.name], row.type), (row.name, current[row.name])


def _is_of(value: object, kind: str) -> bool:
    """Exactly: 1 is no float, and true is no integer."""
    base = kind.removesuffix("_or_null")
    types = {"bool": bool, "int": int, "float": float, "str": str, "array": list, "object": dict}
    return type(value) is types[base] or (value is None and base != kind)


def test_only_the_diffusion_sampler_has_a_list_of_words(store: SettingsStore) -> None:
    schema = store.describe()["schema"]
    lists = {entry["name"]: entry["allowed"] for entry in schema if entry["allowed"] is not None}
    assert lists == {"diffusion_sampler": ["entropy-bound", "confidence-threshold"]}


@pytest.mark.parametrize("row", LACKING, ids=[row.name for row in LACKING])
def test_what_this_server_lacks_says_so_and_takes_nothing(store: SettingsStore, row: Row) -> None:
    before = store.current
    [refused] = store.patch({row.name: row.value}).rejected
    assert refused["reason"].startswith("read-only: ")
    assert "without effect here, also after a restart: " in refused["reason"]
    assert store.current is before
