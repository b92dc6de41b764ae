"""Answers in a form, and thoughts before them, through the official client."""

import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, ConfigDict, Field

from tests.whole.program import Program
from tests.whole.scenarios.asking import (
    Ai,
    body,
    chat,
    chunks,
    events,
    joined,
    reason_of,
    refused,
    settle,
    text_of,
)
from tests.whole.scenarios.conftest import Connect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

ASKED = "Name the capital of France and its country."
CLOSING = {str(byte): 20.0 for byte in b'"}]'}
"""A `logit_bias` for the random model: what is open is closed soon."""
LETTERS = {str(byte): 100 for byte in range(ord("a"), ord("z") + 1)}
LENGTH = 24


class City(BaseModel):
    """As people write them for `parse`; strict, so that no value is coerced."""

    model_config = ConfigDict(strict=True)
    city: str = Field(max_length=12)
    country: str = Field(max_length=12)


class Record(BaseModel):
    model_config = ConfigDict(strict=True)
    city: str
    days: int


def form(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema} | more}


SMALL = {
    "type": "object",
    "properties": {
        "word": {"type": "string", "maxLength": 4},
        "kind": {"enum": ["x", "y"]},
        "ok": {"type": "boolean"},
    },
    "required": ["word", "kind", "ok"],
    "additionalProperties": False,
}


def check_small(text: str) -> None:
    value = json.loads(text)
    assert list(value) == ["word", "kind", "ok"]
    assert isinstance(value["word"], str)
    assert len(value["word"]) <= 4
    assert value["kind"] in ("x", "y")
    assert isinstance(value["ok"], bool)


@pytest.mark.parametrize("strict", [True, None], ids=["strict", "unsaid"])
async def test_a_schema_binds(connect: Connect, tiny_server: Program, strict: bool | None) -> None:
    ai = connect(tiny_server)
    asked = form(SMALL) if strict is None else form(SMALL, strict=strict)
    fields: dict[str, Any] = {"response_format": asked, "seed": 3, "max_tokens": 200}
    whole = await chat(ai, **fields)
    check_small(text_of(whole))
    assert whole.choices[0].finish_reason == "stop"
    found = await chunks(ai, **fields)
    assert (joined(found), reason_of(found)) == (text_of(whole), "stop")


async def test_each_choice_keeps_to_the_schema(connect: Connect, tiny_server: Program) -> None:
    fields: dict[str, Any] = {"response_format": form(SMALL), "n": 3, "max_tokens": 200}
    answer = await chat(connect(tiny_server), temperature=1.5, **fields)
    for choice in range(3):
        check_small(text_of(answer, choice))


async def test_any_object_will_do(connect: Connect, tiny_server: Program) -> None:
    ai = connect(tiny_server)
    fields: dict[str, Any] = {
        "response_format": {"type": "json_object"},
        "logit_bias": CLOSING,
        "max_tokens": 200,
        "seed": 1,
    }
    whole = await chat(ai, **fields)
    assert whole.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(text_of(whole)), dict)
    assert joined(await chunks(ai, **fields)) == text_of(whole)


async def test_text_is_a_form_like_none(connect: Connect, scripted: Program) -> None:
    answer = await chat(connect(scripted), "plain", response_format={"type": "text"})
    assert text_of(answer) == "plain"


async def test_a_class_is_parsed(connect: Connect, tiny_server: Program) -> None:
    """A random model: without the schema it would not even say a brace."""
    ai = connect(tiny_server)
    sent = body(ASKED, response_format=City, seed=2, max_tokens=200)
    answer = await settle(ai.chat.completions.parse(**sent))
    assert isinstance(answer.choices[0].message.parsed, City)
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.slow
async def test_a_class_is_parsed_while_it_comes(connect: Connect, smollm2: Program) -> None:
    sent = {"response_format": City, "temperature": 0, "max_tokens": 40}
    told, final = await events(connect(smollm2), ASKED, **sent)
    deltas = [event for event in told if event.type == "content.delta"]
    [done] = [event for event in told if event.type == "content.done"]
    assert "".join(event.delta for event in deltas) == deltas[-1].snapshot == done.content
    assert done.parsed == final.choices[0].message.parsed == City(city="Paris", country="France")
    assert any(event.parsed == {"city": "Paris"} for event in deltas), "parsed before its end"


async def test_a_class_is_filled_from_what_is_said(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await settle(ai.chat.completions.parse(**body("record", response_format=Record)))
    assert answer.choices[0].message.parsed == Record(city="Oslo", days=3)
    told, final = await events(ai, "record", response_format=Record)
    assert final.choices[0].message.parsed == Record(city="Oslo", days=3)
    assert [event.type for event in told][-1] == "content.done"


async def test_an_answer_cut_short_is_not_parsed(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    with pytest.raises(openai.LengthFinishReasonError) as caught:
        await settle(
            ai.chat.completions.parse(**body("record", response_format=Record, max_tokens=5))
        )
    assert caught.value.completion.choices[0].message.content == '{"cit'
    with pytest.raises(openai.LengthFinishReasonError):
        await events(ai, "record", response_format=Record, max_tokens=5)


async def test_the_helper_tells_of_plain_text_too(connect: Connect, scripted: Program) -> None:
    told, final = await events(connect(scripted), "plain", stream_options={"include_usage": True})
    assert [event.type for event in told if event.type != "chunk"][-1] == "content.done"
    assert final.choices[0].message.content == "plain"
    assert final.choices[0].message.tool_calls is None
    assert final.usage.completion_tokens == 5


async def test_the_helper_tells_how_likely(connect: Connect, scripted: Program) -> None:
    fields = {"logprobs": True, "top_logprobs": 1}
    told, final = await events(connect(scripted), "likely", **fields)
    [done] = [event for event in told if event.type == "logprobs.content.done"]
    assert "".join(place.token for place in done.content) == "likely"
    assert final.choices[0].logprobs.content == done.content


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        pytest.param({"type": "yaml"}, "yaml", id="kind"),
        pytest.param({"type": "json_schema"}, "json_schema", id="no-schema"),
        pytest.param(form({"type": "object", "minProperties": 2}), "minProperties", id="keyword"),
    ],
)
async def test_a_form_that_cannot_be_kept_is_refused(
    connect: Connect, tiny_server: Program, asked: Any, words: str
) -> None:
    ai = connect(tiny_server)
    for stream in (False, True):
        sent = body(response_format=asked, stream=stream)
        error = await refused(openai.BadRequestError, ai.chat.completions.create, **sent)
        assert (error.param or "").startswith("response_format")
        assert words in error.message


# Thoughts


def thoughts(message: Any) -> str | None:
    """Both names say the same; a client of OpenAI's finds them beside its own fields."""
    found: dict[str, Any] = message.model_extra or {}
    assert found.get("reasoning") == found.get("reasoning_content")
    return found.get("reasoning_content")


def streamed_thoughts(found: Sequence[ChatCompletionChunk]) -> str:
    return "".join(thoughts(each.delta) or "" for chunk in found for each in chunk.choices)


async def thought(ai: Ai, **fields: Any) -> ChatCompletion:
    given: Any = {"temperature": 0, "max_tokens": LENGTH, "logit_bias": LETTERS} | fields
    answer = await chat(ai, "think", **given)
    found = await chunks(ai, "think", **given)
    assert (streamed_thoughts(found) or None) == thoughts(answer.choices[0].message)
    assert joined(found) == text_of(answer)
    return answer


@pytest.mark.parametrize(
    "name", ["thinking_budget_tokens", "thinking_token_budget", "thinking_budget"]
)
async def test_a_budget_ends_the_thoughts(connect: Connect, thinker: Program, name: str) -> None:
    answer = await thought(connect(thinker), extra_body={name: 5})
    assert len(thoughts(answer.choices[0].message) or "") == 5
    assert len(text_of(answer)) == LENGTH - 5 - 1
    assert answer.usage is not None
    assert answer.usage.completion_tokens == LENGTH


async def test_nothing_but_thoughts_is_said_to_be_so(connect: Connect, thinker: Program) -> None:
    answer = await thought(connect(thinker))
    assert len(thoughts(answer.choices[0].message) or "") == LENGTH
    assert text_of(answer) == ""
    assert (answer.model_extra or {})["reasoning_only"] is True


async def test_the_template_is_told_not_to_think(connect: Connect, thinker: Program) -> None:
    kwargs = {"chat_template_kwargs": {"enable_thinking": False}}
    answer = await thought(connect(thinker), extra_body=kwargs)
    assert thoughts(answer.choices[0].message) is None
    assert len(text_of(answer)) == LENGTH


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh"])
async def test_effort_reaches_the_template(connect: Connect, thinker: Program, effort: Any) -> None:
    ai = connect(thinker)
    plain, told = (
        await chat(ai, max_tokens=1),
        await chat(ai, reasoning_effort=effort, max_tokens=1),
    )
    assert plain.usage is not None
    assert told.usage is not None
    assert told.usage.prompt_tokens == plain.usage.prompt_tokens + len(effort) + 2


async def test_earlier_thoughts_may_come_back(connect: Connect, thinker: Program) -> None:
    """A client sends the message as it got it, with the names that are not OpenAI's."""
    ai = connect(thinker)
    answer = await thought(ai, extra_body={"thinking_budget": 4})
    turns = [
        *body("think")["messages"],
        answer.choices[0].message.to_dict(),
        {"role": "user", "content": "on"},
    ]
    after = await chat(ai, messages=turns, max_tokens=3, extra_body={"thinking_budget": 0})
    assert after.choices[0].finish_reason == "length"


@pytest.mark.parametrize("budget", [-2, LENGTH + 1], ids=["below", "above"])
async def test_a_budget_out_of_range_is_refused(
    connect: Connect, thinker: Program, budget: int
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await chat(connect(thinker), max_tokens=LENGTH, extra_body={"thinking_budget": budget})
    assert caught.value.param == "thinking_budget"
    assert str(budget) in caught.value.message


async def test_a_schema_binds_what_comes_after_the_thoughts(
    connect: Connect, thinker: Program
) -> None:
    extra = {"thinking_budget": 6}
    answer = await thought(
        connect(thinker), response_format=form(SMALL), extra_body=extra, max_tokens=120
    )
    assert len(thoughts(answer.choices[0].message) or "") == 6
    check_small(text_of(answer))
