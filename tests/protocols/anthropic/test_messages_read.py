"""Fields of a Messages request, without its messages and tools."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.cache import ANONYMOUS
from mlxcel.core.errors import BadField, BadRequest, ModelNotFound, NotSupported
from mlxcel.core.settings import FixedDefaults
from mlxcel.protocols.anthropic.messages import new_id
from tests.protocols.anthropic.reading import DRAWN, HI, messages_read
from tests.protocols.samples import RULES, SETTINGS


def test_defaults_are_those_of_the_server() -> None:
    read = messages_read()
    request, sampling = read.request, SETTINGS.sampling
    assert request.max_tokens == sampling.max_tokens
    assert (request.sampling.temperature, request.sampling.top_p) == (
        sampling.temperature,
        sampling.top_p,
    )
    assert (request.sampling.seed, request.stop, request.thinking_budget) == (DRAWN, (), None)
    assert request.cache.session == ANONYMOUS
    assert (read.stream, read.shows_thinking, read.ignored_tools) == (False, False, ())


def test_what_is_sent_is_taken() -> None:
    read = messages_read(
        max_tokens=7,
        temperature=0.25,
        top_p=0.5,
        top_k=3,
        stop_sequences=["a", "", "b"],
        stream=True,
        metadata={"user_id": "eve"},
    )
    request, sampling = read.request, read.request.sampling
    assert (request.max_tokens, request.stop, read.stream) == (7, ("a", "b"), True)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.25, 0.5, 3)
    assert request.cache.session == "eve"


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 5, "frequency_penalty": 2, "logit_bias": {"1": 5}, "min_p": 0.5, "n": 3},
        {"response_format": {"type": "json_object"}, "chat_template_kwargs": {"x": 1}},
        {"container": "c", "service_tier": "auto", "mcp_servers": [], "betas": ["x"], "user": "u"},
        dict.fromkeys(("max_tokens", "system", "stop_sequences", "stream", "temperature")),
        dict.fromkeys(("top_p", "top_k", "tools", "tool_choice", "thinking", "metadata")),
        {"metadata": {"user_id": None}, "thinking": {"type": None, "budget_tokens": None}},
    ],
    ids=["sampling", "forms", "of-anthropic", "null", "null-too", "null-inside"],
)
def test_keys_of_no_meaning_here_change_nothing(fields: dict[str, Any]) -> None:
    assert messages_read(**fields) == messages_read()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 5.0}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"stream": 1}, "stream"),
        ({"stop_sequences": [1]}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 65}, "stop_sequences"),
        ({"stop_sequences": ["x" * 1025]}, "stop_sequences"),
        ({"metadata": {"user_id": 5}}, "metadata.user_id"),
        ({"metadata": "x"}, "metadata"),
        ({"thinking": "enabled"}, "thinking"),
        ({"thinking": {"budget_tokens": "x"}}, "thinking.budget_tokens"),
        ({"model": None}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [HI] * 65_537}, "messages"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadField) as refused:
        messages_read(**fields)
    assert refused.value.param == param
    assert refused.value.message.startswith(param)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("enabled", True), ("adaptive", True), ("disabled", False), ("x", False), (None, False)],
)
def test_thinking_is_shown_and_remembered_where_it_is_asked_for(
    kind: str | None, shown: bool
) -> None:
    read = messages_read(max_tokens=50, thinking={"type": kind, "budget_tokens": 50})
    assert (read.shows_thinking, read.request.remembers_thoughts) == (shown, shown)
    assert read.request.thinking_budget == 50  # it counts whatever the kind


@pytest.mark.parametrize("fields", [{"max_tokens": 9}, {"max_tokens": 9, "thinking": {}}])
def test_a_budget_is_part_of_the_answer(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"thinking.budget_tokens must be <= max_tokens \(9\)"):
        messages_read(**fields | {"thinking": {"budget_tokens": 10}})
    with pytest.raises(BadRequest, match="budget_tokens"):
        messages_read(thinking={"budget_tokens": SETTINGS.sampling.max_tokens + 1})


def test_a_model_that_is_not_served_may_be_refused() -> None:
    rules = replace(RULES, refuse_unknown=True)
    assert messages_read(rules=rules).request.id == "msg_0"
    with pytest.raises(ModelNotFound):
        messages_read(rules=rules, model="claude-none")


def test_stops_of_the_server_are_for_those_who_bring_none() -> None:
    rules = replace(RULES, fixed=FixedDefaults(stop=("END",)))
    assert messages_read(rules=rules, stop_sequences=[""]).request.stop == ("END",)
    assert messages_read(rules=rules, stop_sequences="x").request.stop == ("x",)


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
TOO_MUCH = {"budget_tokens": 10**6}
ANY = {"type": "any"}


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"messages": [{"role": "user", "content": [IMAGE]}], "top_k": "x"}, BadField, "top_k"),
        (
            {"messages": [{"role": "user", "content": [IMAGE]}], "tool_choice": ANY},
            NotSupported,
            "messages[0].content[0]",
        ),
        ({"messages": [], "tool_choice": ANY}, BadField, "messages"),
        ({"tool_choice": ANY, "thinking": TOO_MUCH}, BadField, "tool_choice"),
        ({"thinking": TOO_MUCH}, BadRequest, "thinking.budget_tokens"),
    ],
    ids=["body", "media", "no-input", "tools", "budget"],
)
def test_the_order_of_checks(fields: dict[str, Any], error: type[Exception], param: str) -> None:
    """http-anthropic, 2: of two faults the first one is told."""
    with pytest.raises(error) as refused:
        messages_read(**fields)
    assert getattr(refused.value, "param", None) == param


def test_ids_are_of_anthropics_form() -> None:
    ids = {new_id() for _ in range(50)}
    assert len(ids) == 50
    assert all(len(one) == 20 and int(one.removeprefix("msg_"), 16) >= 0 for one in ids)
