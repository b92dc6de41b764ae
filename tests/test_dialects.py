"""The tables for those who come from llama-server name everything there is."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from docs.generate import REFERENCE
from docs.llama_server import Option, options, row_of
from mlxcel.config.flag_table import load_table
from mlxcel.config.paths import data_dir
from mlxcel.protocols.llama.types import TYPES
from tests.dialects import VERDICTS, headings, rows, table
from tests.rows import every

TABLE = load_table()
ASKED = "Fields of a request to `/completion` and `/infill`"
OPTIONS = [option for group in options().values() for option in group]
FIELDS = """
prompt n_predict max_tokens max_completion_tokens stream stream_options sse_ping_interval
timings_per_token return_progress return_tokens response_fields n_cmpl n n_indent
t_max_predict_ms n_keep n_discard cache_prompt temperature top_k top_p min_p typical_p
top_n_sigma xtc_probability xtc_threshold repeat_penalty repeat_last_n presence_penalty
frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n
dry_sequence_breakers mirostat mirostat_tau mirostat_eta dynatemp_range dynatemp_exponent
adaptive_target adaptive_decay min_keep samplers ignore_eos seed stop logit_bias n_probs
logprobs post_sampling_probs grammar json_schema grammar_lazy grammar_triggers
preserved_tokens lora thinking_budget_tokens reasoning_budget_tokens thinking_token_budget
thinking_budget reasoning_control response_format verbose backend_sampling echo id_slot
n_cache_reuse input_prefix input_suffix input_extra
"""
"""Of the interface."""


@every("option", OPTIONS, ids=lambda option: option.flags[-1])
def test_spellings_of_an_option_are_known_and_share_a_fate(option: Option) -> None:
    found = [row_of(TABLE, flag) for flag in option.flags]
    fates = {(r.type, r.reason) if r.reason else (r.type, r.key, r.help) for r in found}
    assert len(fates) == 1, fates


def test_variables_of_llama_server_are_known() -> None:
    known = {name.partition("=")[0] for row in TABLE.rows("serve") for name in row.env}
    theirs = {name for option in OPTIONS for name in option.variables}
    assert len(theirs) > 100
    assert not theirs - known


def test_a_difference_is_told_of_options_that_work() -> None:
    told = [option for option in OPTIONS if option.difference]
    assert not [o.flags for o in told if row_of(TABLE, o.flags[0]).type in ("inert", "refused")]


def test_every_flag_of_the_program_is_on_the_page() -> None:
    page = (REFERENCE / "llama-server.md").read_text("utf-8")
    flags = {flag for row in TABLE.rows("serve") for flag in (*row.flags, *row.negated)}
    assert len(flags) > 300
    assert not {flag for flag in flags if f"`{flag}`" not in page}, "run `make docs`"


def test_every_field_of_a_request_is_on_the_page() -> None:
    there = set(table(ASKED))
    assert {name for _, names in TYPES for name in names} <= there
    assert set(FIELDS.split()) <= there


def test_every_route_is_on_the_page() -> None:
    there = set()
    for name in table("Routes"):
        methods, _, path = name.rpartition(" ")
        there |= {(method, path.partition("?")[0]) for method in methods.split(", ")}
    assert not {row for row in _routes() if row not in there and ("", row[1]) not in there}


def _routes() -> set[tuple[str, str]]:
    """Methods but HEAD, and paths as the page writes them."""
    found = set()
    for file in (data_dir("conf") / "routes" / "rows").glob("*.yaml"):
        loaded: Mapping[str, Any] = yaml.safe_load(file.read_text("utf-8"))
        for row in loaded.values():
            for path in row["paths"]:
                if "conv_kv" not in path and "settings" not in path:
                    found |= {(m, _path(path)) for m in row["methods"] if m != "HEAD"}
    return found


def _path(path: str) -> str:
    return (
        path.replace("<id_slot>", "{id}")
        .replace("<model:path>", "{name}")
        .replace("<response>", "{id}")
    )


@pytest.mark.parametrize("heading", [h for h in headings() if h not in ("llama-server", "OpenAI")])
def test_every_row_has_a_verdict(heading: str) -> None:
    place = 2 if heading == "Other bodies" else 1
    assert rows(heading)
    assert {cells[place] for cells in rows(heading)} <= VERDICTS
