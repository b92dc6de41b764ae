"""The schemas of the wire against the codecs and against what is recorded of them.

A body is refused by the one if and only if the other refuses it; every recorded answer is as it is
described.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from mlxcel.core.errors import BadRequest
from mlxcel.http import wire
from mlxcel.protocols.anthropic import messages
from mlxcel.protocols.kamiwaza.saved import read_required_id, read_save
from mlxcel.protocols.llama import completion, infill
from mlxcel.protocols.llama.control import read_control
from mlxcel.protocols.llama.lora import read_scales
from mlxcel.protocols.llama.slots import read_filename
from mlxcel.protocols.llama.tokenizer import read_detokenize, read_tokenize
from mlxcel.protocols.mlxcel.settings import read_patch, read_revert
from mlxcel.protocols.openai import chat, completions
from mlxcel.protocols.responses import compact, create
from tests.http.site import ROWS
from tests.protocols.samples import RULES, SETTINGS
from tests.wire_schemas import asked, faults, told

GOLDEN = Path(__file__).parents[1] / "golden"
HI = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}
NAMED = {"type": "function", "function": {"name": "f"}}
GIVEN = {"name": "f", "input_schema": {}}
FLAT = {"type": "function", "name": "f"}
SCHEMA = {"type": "json_schema", "name": "n", "schema": {}}


def codec(module: Any, *, require_model: bool = True) -> Callable[[Any], object]:
    rules = replace(RULES, require_model=require_model)
    return partial(
        module.read, request_id="r", settings=SETTINGS, received_s=0.0, rules=rules, draw=lambda: 7
    )


READERS: Mapping[str, tuple[Callable[[Any], object], dict[str, Any]]] = {
    "openai_chat": (codec(chat), {"model": "tiny", "messages": [HI]}),
    "openai_completion": (codec(completions), {"model": "tiny", "prompt": "hi"}),
    "anthropic_messages": (codec(messages), {"model": "tiny", "messages": [HI]}),
    "anthropic_count": (codec(messages, require_model=False), {"messages": [HI]}),
    "responses_create": (codec(create), {"model": "tiny", "input": "hi"}),
    "responses_compact": (
        partial(compact.read, request_id="r", settings=SETTINGS, received_s=0.0, rules=RULES),
        {"model": "tiny", "input": "hi"},
    ),
    "native_completion": (codec(completion), {"prompt": "hi"}),
    "native_infill": (codec(infill), {"input_prefix": "a", "input_suffix": "b"}),
    "tokenize": (read_tokenize, {}),
    "detokenize": (read_detokenize, {}),
    "conversation_save": (read_save, {"conversation": "c"}),
    "conversation_load": (read_required_id, {"conversation": "c"}),
    "settings_patch": (read_patch, {}),
    "settings_revert": (read_revert, {}),
    "slot_file": (lambda body: read_filename(orjson.dumps(body)), {"filename": "f"}),
    "control": (read_control, {"id": "i", "action": "reasoning_end"}),
}
"""How a body is read, and the least that is one."""
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, -2, 9, 21, 2**31, -(2**31), 2**63, 2**64),
    *(0.25, 0.75, 1.5, -0.5, 1e300, "", " ", "x", "x" * 1025, "text", "auto", "required"),
    *([], [0], [-1], [2**31], ["x"], ["x", 1], [" "], [[]], [[1]], [[1, 0.5]], [["x", False]]),
    *([[1, "x"]], [None], [{}], {}, {"x": 1}, {"1": 1}, {"1": "x"}, {"1": False}),
    *({"type": "text"}, {"type": "json_object"}, {"type": "json_schema"}, {"type": "x"}),
    {"type": "json_schema", "json_schema": {"schema": {}}},
    {"type": "json_schema", "json_schema": {"schema": []}},
    {"include_usage": True},
)
BLOCKS: tuple[Any, ...] = (
    *({}, {"type": "x"}, 5, {"type": "document"}, {"type": "document", "source": 5}),
    {"type": "document", "source": {"type": "text", "data": "x"}},
    {"type": "document", "source": {"type": "text"}},
    {"type": "document", "source": {"type": "base64", "data": "x"}},
    *({"type": "image", "source": {"type": "file"}}, {"type": "image", "source": "x"}),
    {"type": "tool_use", "id": "c", "name": "f", "input": {}},
    *({"type": "tool_use"}, {"type": "tool_use", "name": "f", "input": "x"}),
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]},
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text"}]},
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "x"}, {}]},
    *({"type": "tool_result", "tool_use_id": "c"}, {"type": "tool_result"}),
    {"type": "tool_result", "tool_use_id": "c", "content": 5},
    *({"type": "thinking", "thinking": "x", "signature": ""}, {"type": "thinking"}),
    {"type": "redacted_thinking", "data": "x"},
)
"""Of Anthropic's messages."""
OF_FIELD: Mapping[str, tuple[Any, ...]] = {
    "messages": (
        *([HI, {"role": "x"}], [{"role": role, "content": "hi"} for role in ("tool", "developer")]),
        *([{"role": "user"}], [{"role": "user", "content": " "}], [{"content": "hi"}]),
        [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        [{"role": "user", "content": [{"type": "text", "text": ""}]}],
        [HI, {"role": "user", "content": [{"type": "text"}]}],
        [HI, {"role": "user", "content": 5}],
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
        [HI, {"role": "assistant", "tool_calls": [CALL | {"id": None}]}],
        [HI, {"role": "assistant", "tool_calls": [CALL | {"type": "x"}]}],
        [HI, {"role": "assistant", "tool_calls": [CALL | {"function": {"name": "f"}}]}],
        [{"role": "assistant", "reasoning": "hm"}],
        [{"role": "assistant", "reasoning_content": ""}],
        [HI | {"name": 5}],
        [HI | {"name": None}],
        [HI, {"role": "system", "content": "x"}],
        [{"role": "system", "content": "x"}],
        *([{"role": "user", "content": [block]}] for block in BLOCKS),
        *([{"role": "assistant", "content": [block]}] for block in BLOCKS),
        *([HI, {"role": "user", "content": [block]}] for block in BLOCKS),
    ),
    "tools": (
        *([TOOL], [TOOL] * 129, [{"type": "function"}], [TOOL | {"type": "x"}]),
        [{"type": "function", "function": {"name": " "}}],
        *([FLAT], [FLAT] * 129, [FLAT | {"name": " "}], [FLAT | {"parameters": []}]),
        *([FLAT, {"type": "web_search"}], [FLAT | {"strict": None}], [FLAT | {"strict": 5}]),
        [{"type": "function", "function": {"name": "f", "parameters": []}}],
        *([{"name": "f", "input_schema": {}}], [{"name": "f", "input_schema": 5}], [{"name": 5}]),
        *([{"type": "web_search"}], [{"name": "f", "input_schema": {}}] * 129),
        [{"name": "f", "input_schema": {}, "description": 5}],
        [{"type": "function", "function": {"name": "f", "parameters": None, "description": None}}],
    ),
    "tool_choice": (
        *({"type": "any"}, {"type": "tool", "name": "f"}, {"type": "tool"}, {"type": "none"}),
        *(NAMED, {"type": "function"}, {"type": "function", "function": {"name": ""}}),
    ),
    "system": (
        *([{"type": "text", "text": "x"}], [{"type": "text"}], [{"type": "image"}], "x"),
        [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
    ),
    "thinking": (
        *({"type": "enabled", "budget_tokens": 5}, {"budget_tokens": -2}, {"budget_tokens": None}),
        *({"type": 5}, {"budget_tokens": "5"}, {"type": None}),
    ),
    "metadata": (
        *({str(n): "x" for n in range(16)}, {str(n): "x" for n in range(17)}),
        {"user_id": "u"},
        {"user_id": 5},
        {"user_id": None},
    ),
    "stop_sequences": (["x"] * 64, ["x"] * 65),
    "stop": (["x"] * 64, ["x"] * 65),
    "logit_bias": ({str(n): 1 for n in range(1025)}, [[n, 1] for n in range(1025)]),
    "prompt": ([["x"]], ["x"] * 129, [1, "x"], [1, -1]),
    "samplers": ("edskypmxt", "edskypmxta", "kmxt"),
    "dry_sequence_breakers": (["x"] * 65, [1] * 4097, ["x" * 41]),
    "grammar_triggers": (
        *([{"type": 0, "token": 5}], [{"type": 0}], [{"type": 1, "value": "x"}], [{"type": 1}]),
        *([{"type": 4, "value": "x"}], [{"type": 1, "value": ""}], [{"value": "x"}]),
        *([{"type": 0, "token": -1}], [{"type": 0, "token": 5, "value": 5}]),
    ),
    "input": (
        *(
            [HI],
            [HI | {"type": "message"}],
            [HI, {"role": "x", "content": "hi"}],
            [{"role": "user"}],
        ),
        *([HI, {"id": "i"}], [HI, {"type": "x"}], [HI, {"content": "hi"}], [HI | {"content": " "}]),
        [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        [HI, {"role": "user", "content": [{"type": "input_text"}]}],
        [HI, {"role": "user", "content": [{"type": "x", "text": "hi"}]}],
        [HI, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
        [HI, {"type": "function_call", "call_id": "c", "name": "f"}],
        [HI, {"type": "function_call_output", "call_id": "c", "output": "7"}],
        [HI, {"type": "function_call_output", "call_id": "c", "output": [{"type": "x"}]}],
        [HI, {"type": "function_call_output", "call_id": "c"}],
        [HI, {"type": "reasoning", "summary": []}],
        [HI, {"type": "reasoning", "content": [{"text": "hm"}]}],
        [HI, {"type": "reasoning", "content": [{"type": "x", "text": "hm"}]}],
        [HI, {"type": "compaction"}],
        [HI, {"type": "compaction", "encrypted_content": "b64:aGk="}],
        [HI, HI | {"id": 5}],
    ),
    "text": ({"format": SCHEMA}, {"format": {"type": "x"}}, {"format": {"type": "text"}}),
    "reasoning": ({"effort": "low"}, {"effort": 5}, {"summary": None}),
    "include": (["reasoning.encrypted_content"],),
    "lora": ([{"id": 0, "scale": 1}], [{"id": 0}], [{"scale": 1}], [{"id": 0, "scale": "x"}]),
    "input_extra": ([{"text": "x"}], [{"filename": "f"}], [{"text": "x", "filename": None}]),
    "content": (["x", 1], ["x", None]),
    "op": ("merge", "replace"),
    "conversation": ("x" * 513,),
}
TOGETHER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("openai_chat", {"top_logprobs": 3, "logprobs": True}),
    ("openai_chat", {"top_logprobs": 3, "logprobs": False}),
    ("openai_chat", {"top_logprobs": None}),
    ("openai_chat", {"repeat_penalty": 1, "repetition_penalty": 1}),
    ("openai_chat", {"repeat_penalty": None, "repetition_penalty": 1}),
    ("openai_chat", {"max_tokens": 5, "max_completion_tokens": 5}),
    ("openai_chat", {"n_predict": 5, "max_completion_tokens": 5}),
    ("openai_chat", {"n_predict": 5, "max_tokens": 5}),
    ("openai_chat", {"stream": True, "stream_options": {"include_usage": 5}}),
    ("openai_chat", {"stream": False, "stream_options": {"include_usage": 5}}),
    ("openai_chat", {"stream": True, "stream_options": {"include_usage": None}}),
    ("openai_chat", {"tool_choice": "required"}),
    ("openai_chat", {"tool_choice": "required", "tools": [TOOL]}),
    ("openai_chat", {"tool_choice": "auto", "response_format": {"type": "json_object"}}),
    (
        "openai_chat",
        {"tool_choice": NAMED, "tools": [TOOL], "response_format": {"type": "json_object"}},
    ),
    (
        "openai_chat",
        {"tool_choice": NAMED, "tools": [TOOL], "response_format": {"type": "text"}},
    ),
    ("responses_create", {"tool_choice": "required"}),
    ("responses_create", {"tool_choice": "required", "tools": [FLAT]}),
    ("responses_create", {"tool_choice": FLAT, "tools": [FLAT]}),
    ("responses_create", {"tool_choice": FLAT, "tools": [FLAT], "text": {"format": SCHEMA}}),
    ("responses_create", {"previous_response_id": "resp_0", "conversation": "c"}),
    ("responses_create", {"previous_response_id": "resp_0", "conversation": None}),
    ("responses_create", {"previous_response_id": "resp_0", "conversation": {"id": "c"}}),
    ("responses_create", {"max_tokens": 5, "max_output_tokens": 5}),
    ("openai_chat", {"reasoning_budget_tokens": 5, "thinking_budget_tokens": 5}),
    ("openai_chat", {"thinking_budget": 5, "thinking_budget_tokens": 5}),
    ("anthropic_messages", {"tool_choice": {"type": "any"}}),
    ("anthropic_messages", {"tool_choice": {"type": "any"}, "tools": [{"type": "web_search"}]}),
    ("anthropic_messages", {"tool_choice": {"type": "any"}, "tools": [{"name": "f"}, GIVEN]}),
    ("anthropic_messages", {"tool_choice": {"type": "tool", "name": "f"}, "tools": [GIVEN]}),
    ("native_completion", {"max_tokens": 5, "max_completion_tokens": 5}),
    ("native_completion", {"n": 1, "n_cmpl": 1}),
    ("native_completion", {"grammar_lazy": True, "grammar": "root ::= [a-z]"}),
    (
        "native_completion",
        {"grammar_lazy": True, "grammar_triggers": [{"type": 1, "value": "x"}]},
    ),
    ("conversation_load", {"conversation": " ", "conversation_id": "c"}),
    ("conversation_load", {"conversation": " "}),
    ("settings_patch", {"values": {}, "op": "merge", "atomic": True}),
    ("settings_patch", {"values": {}, "more": 1}),
    ("settings_patch", {"op": "merge"}),
)
BEYOND = (
    *("must be <= max_tokens", "[-1]} is taken", "may have 512 characters", "is kept here"),
    "wants the name of one of the functions",
)
"""What is beyond a schema, or known by the vocabulary alone."""


def agree(name: str, body: dict[str, Any]) -> str:
    """Where schema and codec differ; empty where they do not."""
    sent = orjson.loads(json.dumps(body))
    said = faults(asked(name), sent)
    try:
        READERS[name][0](sent)
    except BadRequest as error:
        return "" if said else f"{body} is refused: {error}"
    return f"{body} is taken, but: {said}" if said else ""


@pytest.mark.parametrize("name", READERS)
def test_a_schema_says_of_each_field_what_its_codec_does(name: str) -> None:
    least = READERS[name][1]
    found = [
        agree(name, least | {field: value})
        for field in wire.fields_of(name).get("properties", {})
        for value in (*VALUES, *OF_FIELD.get(field, ()))
    ]
    assert not [line for line in found if line and not any(word in line for word in BEYOND)]


@pytest.mark.parametrize(("name", "fields"), TOGETHER)
def test_a_schema_says_what_stands_beside_what(name: str, fields: dict[str, Any]) -> None:
    assert agree(name, READERS[name][1] | fields) == ""


@pytest.mark.parametrize("name", READERS)
def test_a_schema_says_what_must_be_there(name: str) -> None:
    least = READERS[name][1]
    bodies = [{k: v for k, v in least.items() if k != field} for field in least]
    assert not list(filter(None, [agree(name, body) for body in (least, *bodies)]))


@pytest.mark.parametrize(
    "scales",
    [[], [{"id": 0, "scale": 1}], [{"id": 0}], [{"id": "x", "scale": 1}], [5], {}, None, "x"],
)
def test_scales_of_adapters(scales: Any) -> None:
    said = faults(asked("lora_scales"), scales)
    try:
        read_scales(scales)
    except BadRequest:
        assert said
    else:
        assert not said


BODIES = {
    "messages": ("anthropic_messages", "anthropic_message", "anthropic_data", "anthropic_data"),
    "chat": ("openai_chat", "chat_completion", "chat_chunk", "openai_error"),
    "completion": ("openai_completion", "text_completion", "text_chunk", "openai_error"),
    "native_completion": ("native_completion", "native_final", "native_piece", "llama_error"),
    "native_infill": ("native_infill", "native_final", "native_piece", "llama_error"),
}
"""Request, whole answer, chunk, and what a stream says of a failure."""
DIALECTS = ("openai", "llama", "anthropic")
GOLDENS = sorted(path for dialect in DIALECTS for path in (GOLDEN / dialect).iterdir())


def events(stream: str) -> list[dict[str, Any]]:
    frames = [line.partition("data: ")[2] for line in stream.split("\n\n") if line]
    return [json.loads(frame) for frame in frames if frame != "[DONE]"]


@pytest.mark.parametrize("case", GOLDENS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_is_recorded_is_as_described(case: Path) -> None:
    kind = case.name.split("_")[0]
    request, whole, chunk, error = BODIES[f"native_{kind}" if case.parent.name == "llama" else kind]
    body = json.loads((case / "request.json").read_text())
    assert not faults(asked(request), {"model": "m"} | body)
    if "response_fields" in body:
        whole = "native_projection"
    if (case / "response.json").exists():
        assert not faults(told(whole), json.loads((case / "response.json").read_text()))
        return
    for event in events((case / "stream.sse").read_text()):
        is_final = event.get("stop", whole == "native_projection" and "stop" not in event)
        name = error if "error" in event else whole if is_final else chunk
        assert not faults(told(name), event)


@pytest.mark.parametrize(
    "case", sorted((GOLDEN / "responses").iterdir()), ids=lambda path: path.name
)
def test_what_is_recorded_of_responses_is_as_described(case: Path) -> None:
    assert not faults(asked("responses_create"), json.loads((case / "request.json").read_text()))
    if (case / "response.json").exists():
        assert not faults(told("response"), json.loads((case / "response.json").read_text()))
        return
    lines = (case / "stream.sse").read_text().splitlines()
    sent = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert sent
    assert not [fault for event in sent for fault in faults(told("response_data"), event)]


def test_every_file_is_of_some_route() -> None:
    words = ("body", "path", "query", "headers", "stream")
    used = {row[word] for row in ROWS.values() for word in words if word in row}
    used |= {body for row in ROWS.values() for body in row["answers"].values() if body}
    used |= {f"{row['dialect']}_error" for row in ROWS.values()}
    while (
        more := {wire.file_of(ref) for one in used for ref in wire.referred(wire.read(one))} - used
    ):
        used |= more
    assert wire.names() - used == set()
