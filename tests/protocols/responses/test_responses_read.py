"""From a Responses body to a request: what is refused and in which order, what is echoed."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField, BadRequest, ModelNotFound, NotSupported
from mlxcel.core.output import OutputKind
from mlxcel.protocols.responses import create
from tests.protocols.responses.reading import WEATHER, responses_read
from tests.protocols.samples import RULES, SETTINGS

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("model", {"model": None}),
    ("stream", {"stream": "yes"}),
    ("conversation", {"previous_response_id": "resp_1", "conversation": "c"}),
    ("background", {"background": True}),
    ("metadata", {"metadata": {str(n): "x" for n in range(17)}}),
    ("truncation", {"truncation": "auto"}),
    ("max_output_tokens", {"max_output_tokens": 0}),
    ("tools[0].name", {"tools": [{"type": "function"}]}),
    ("input[0].type", {"input": [{"type": "compaction_trigger"}]}),
    ("input", {"input": " "}),
    ("xtc_threshold", {"xtc_threshold": 0.6}),
    ("top_n_sigma", {"top_n_sigma": -1}),
    ("typical_p", {"typical_p": 0}),
    ("text.format.type", {"text": {"format": {"type": "grammar"}}}),
    ("thinking_budget", {"thinking_budget": -2}),
]
"""What is wrong, in the order of the contract (http-responses, 2)."""


@pytest.mark.parametrize("first", range(len(WRONG)), ids=[name for name, _ in WRONG])
def test_the_first_check_that_fails_is_told(first: int) -> None:
    sent = {key: value for _, fields in reversed(WRONG[first:]) for key, value in fields.items()}
    with pytest.raises(BadRequest) as caught:
        responses_read(**sent)
    assert caught.value.param == WRONG[first][0]


@pytest.mark.parametrize(
    ("param", "sent"),
    [
        pytest.param("input", {"input": None}, id="no-input"),
        pytest.param("input", {"input": 7}, id="input-as-number"),
        pytest.param("input", {"input": []}, id="no-items"),
        pytest.param("input[0]", {"input": ["hi"]}, id="item-as-string"),
        pytest.param("metadata", {"metadata": {"a": 1}}, id="metadata-as-number"),
        pytest.param("max_tokens", {"max_tokens": 0}, id="older-limit-of-zero"),
        pytest.param("max_output_tokens", {"max_output_tokens": 7.0}, id="limit-as-float"),
        pytest.param("max_tool_calls", {"max_tool_calls": -1}, id="negative-calls"),
        pytest.param("conversation", {"conversation": 7}, id="conversation-as-number"),
        pytest.param("conversation", {"conversation": ""}, id="empty-conversation"),
        pytest.param("conversation.id", {"conversation": {}}, id="conversation-without-id"),
        pytest.param("top_logprobs", {"top_logprobs": 21}, id="many-logprobs"),
        pytest.param("reasoning.effort", {"reasoning": {"effort": 1}}, id="effort-as-number"),
        pytest.param("include", {"include": 7}, id="include-as-number"),
        pytest.param(
            "stream_options.include_obfuscation",
            {"stream_options": {"include_obfuscation": "no"}},
            id="obfuscation-as-string",
        ),
        pytest.param(
            "text.format.schema", {"text": {"format": {"type": "json_schema"}}}, id="no-schema"
        ),
        pytest.param("thinking_budget_tokens", {"thinking_budget_tokens": -2}, id="budget"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(param: str, sent: dict[str, Any]) -> None:
    with pytest.raises(BadField if param != "thinking_budget_tokens" else BadRequest) as caught:
        responses_read(**sent)
    assert caught.value.param == param


def test_null_is_as_good_as_absent_everywhere() -> None:
    names = (
        "instructions tools tool_choice parallel_tool_calls text reasoning conversation "
        "previous_response_id store stream stream_options max_output_tokens max_tokens include "
        "max_tool_calls truncation temperature top_p top_logprobs metadata prompt_cache_key user "
        "safety_identifier background service_tier top_k min_p seed stop logit_bias extra_body "
        "chat_template_kwargs thinking_budget max_pattern_size min_pattern_size min_count"
    )
    nulls, absent = responses_read(**dict.fromkeys(names.split())), responses_read()
    assert (nulls.request, nulls.echoes) == (absent.request, absent.echoes)
    assert nulls.asked == absent.asked


def test_left_out_fields_come_from_the_settings() -> None:
    read = responses_read()
    sampling = SETTINGS.sampling
    assert read.request.max_tokens == sampling.max_tokens
    assert read.echoes["temperature"] == sampling.temperature
    assert read.echoes["top_p"] == sampling.top_p
    assert read.echoes["max_output_tokens"] is None
    assert (read.store, read.stream, read.ping_s, read.is_counted) == (True, False, None, True)


def test_the_older_limit_wins() -> None:
    assert responses_read(max_output_tokens=9).request.max_tokens == 9
    both = responses_read(max_output_tokens=9, max_tokens=7)
    assert (both.request.max_tokens, both.echoes["max_output_tokens"]) == (7, 7)


@pytest.mark.parametrize("sent", [None, "", "disabled"])
def test_truncation_that_is_off(sent: str | None) -> None:
    assert responses_read(truncation=sent).echoes["truncation"] == "disabled"


def test_sixteen_entries_of_metadata_are_taken() -> None:
    metadata = {str(n): "x" for n in range(16)}
    assert responses_read(metadata=metadata).echoes["metadata"] == metadata


@pytest.mark.parametrize("sent", ["c", {"id": "c"}])
def test_a_conversation_is_echoed_as_its_id(sent: Any) -> None:
    read = responses_read(conversation=sent)
    assert (read.conversation, read.echoes["conversation"]) == ("c", "c")


@pytest.mark.parametrize(
    ("sent", "user"),
    [
        ({"user": "u", "safety_identifier": "s"}, "u"),
        ({"safety_identifier": "s"}, "s"),
        ({}, None),
    ],
)
def test_the_user_is_echoed(sent: dict[str, str], user: str | None) -> None:
    assert responses_read(**sent).echoes["user"] == user


def test_what_is_named_before_the_history_is_looked_up() -> None:
    body = {"model": "tiny", "previous_response_id": "resp_1", "store": False}
    asked = create.read_first(body, RULES)
    assert (asked.previous_id, asked.conversation, asked.store) == ("resp_1", None, False)


def test_the_session_is_named_by_the_cache_key() -> None:
    assert responses_read(prompt_cache_key="k", user="u").request.cache.session == "k"


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
    ],
    ids=["flat", "nested"],
)
def test_both_forms_of_a_schema(form: dict[str, Any]) -> None:
    read = responses_read(text={"format": form})
    assert read.request.output is not None
    assert read.request.output.kind is OutputKind.JSON_SCHEMA
    assert read.request.output.param == "text.format"
    assert read.echoes["text"] == {
        "format": {
            "type": "json_schema",
            "name": "n",
            "description": None,
            "schema": SCHEMA,
            "strict": True,
        }
    }


def test_a_json_object() -> None:
    read = responses_read(text={"format": {"type": "json_object"}, "verbosity": "low"})
    assert read.request.output is not None
    assert read.request.output.kind is OutputKind.JSON_OBJECT
    assert read.echoes["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}


def test_effort_is_echoed_and_not_handed_on() -> None:
    read = responses_read(reasoning={"effort": "low", "summary": "auto"})
    assert read.echoes["reasoning"] == {"effort": "low", "summary": "auto"}
    assert read.request.chat.kwargs == {}
    kwargs = {"enable_thinking": False}
    assert responses_read(chat_template_kwargs=kwargs).request.chat.kwargs == kwargs


def test_thoughts_are_sealed_for_whoever_asks() -> None:
    assert responses_read(include=["reasoning.encrypted_content"]).seals
    assert not responses_read(include=["message.output_text.logprobs"]).seals


def test_an_unknown_model_is_refused_where_the_server_says_so() -> None:
    with pytest.raises(ModelNotFound):
        responses_read(replace(RULES, refuse_unknown=True), model="gpt-5")
    assert responses_read(replace(RULES, require_model=False), model=None)


def test_instructions_are_input_enough() -> None:
    assert responses_read(input=" ", instructions="Sing.").request.chat.messages[0].text == "Sing."


def test_media_come_before_blank_input() -> None:
    image = {"type": "input_image", "image_url": "data:,"}
    with pytest.raises(NotSupported) as caught:
        responses_read(input=[{"role": "user", "content": [image]}], typical_p=0)
    assert caught.value.param == "input[0].content[0]"


def test_ids_have_their_form() -> None:
    first, second = create.new_id(), create.new_id()
    assert first != second
    assert first.startswith("resp_")
    assert len(bytes.fromhex(first.removeprefix("resp_"))) == 16


def test_tools_go_through() -> None:
    assert [tool.name for tool in responses_read(tools=[WEATHER]).request.chat.tools] == ["weather"]
