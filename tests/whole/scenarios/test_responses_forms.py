"""Responses in a form, and thoughts before them, through the official client."""

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mlxcel.protocols.responses.sealed import opened as unsealed
from tests.whole.program import Program
from tests.whole.scenarios.asking import Ai, opened, refused, settle
from tests.whole.scenarios.conftest import Connect
from tests.whole.scenarios.responder import (
    body,
    check,
    count,
    events,
    helped,
    kinds_of,
    respond,
    result,
    thoughts_of,
    thrice,
    turn,
)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

CLOSING = {str(byte): 20.0 for byte in b'"}]'}
"""A `logit_bias` for the random model: what is open is closed soon."""
LETTERS = {str(byte): 100 for byte in range(ord("a"), ord("z") + 1)}
LENGTH = 24
SEALED: Any = ["reasoning.encrypted_content"]


class Record(BaseModel):
    model_config = ConfigDict(strict=True)
    city: str
    days: int


class City(BaseModel):
    model_config = ConfigDict(strict=True)
    city: str = Field(max_length=8)
    country: str = Field(max_length=8)


SMALL = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 4}, "kind": {"enum": ["x", "y"]}},
    "required": ["word", "kind"],
    "additionalProperties": False,
}


def form(schema: Any = SMALL, **more: Any) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "name": "form", "schema": schema} | more}


def check_small(text: str) -> None:
    value = json.loads(text)
    assert list(value) == ["word", "kind"]
    assert isinstance(value["word"], str)
    assert len(value["word"]) <= 4
    assert value["kind"] in ("x", "y")


# Forms


@pytest.mark.parametrize("strict", [True, None], ids=["strict", "unsaid"])
async def test_a_schema_binds(connect: Connect, tiny_server: Program, strict: bool | None) -> None:
    asked = form() if strict is None else form(strict=strict, description="small")
    fields: Any = {"text": asked, "extra_body": {"seed": 3}, "max_output_tokens": 200}
    answer = await thrice(connect(tiny_server), **fields)
    check_small(answer.output_text)
    assert answer.status == "completed"
    assert answer.text is not None
    assert answer.text.to_dict() == {
        "format": asked["format"]
        | {"strict": strict is True, "description": None if strict is None else "small"}
    }


async def test_a_schema_may_stand_as_in_chats(connect: Connect, tiny_server: Program) -> None:
    nested = {"format": {"type": "json_schema", "json_schema": {"name": "f", "schema": SMALL}}}
    answer = await respond(connect(tiny_server), text=nested, max_output_tokens=200)
    check_small(answer.output_text)


async def test_any_object_will_do(connect: Connect, tiny_server: Program) -> None:
    asked = {"format": {"type": "json_object"}}
    extra = {"logit_bias": CLOSING, "seed": 1}
    fields: Any = {"text": asked, "extra_body": extra, "max_output_tokens": 200}
    answer = await thrice(connect(tiny_server), **fields)
    assert answer.status == "completed"
    assert isinstance(json.loads(answer.output_text), dict)


async def test_a_class_is_parsed(connect: Connect, tiny_server: Program) -> None:
    """A random model: without the schema it would not even say a brace."""
    ai, sent = connect(tiny_server), body(text_format=City, max_output_tokens=200)
    answer = await settle(ai.responses.parse(**sent))
    assert isinstance(answer.output_parsed, City)
    assert answer.text.format.name == "City"
    assert answer.text.format.strict is True
    told, final = await helped(ai, text_format=City, max_output_tokens=200)
    [done] = [event for event in told if event.type == "response.output_text.done"]
    assert isinstance(done.parsed, City)
    assert done.parsed == final.output_parsed  # type: ignore[attr-defined]


async def test_a_class_is_filled_from_what_is_said(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await settle(ai.responses.parse(**body("record", text_format=Record)))
    check(answer)
    assert answer.output_parsed == Record(city="Oslo", days=3)
    assert answer.output[0].content[0].parsed == answer.output_parsed
    _, final = await helped(ai, "record", text_format=Record)
    assert final.output_parsed == answer.output_parsed  # type: ignore[attr-defined]


async def test_what_is_parsed_may_come_as_raw(connect: Connect, scripted: Program) -> None:
    raw = await settle(
        connect(scripted).responses.with_raw_response.parse(**body("record", text_format=Record))
    )
    assert raw.headers["x-request-id"].startswith("resp_")
    assert raw.parse().output_parsed == Record(city="Oslo", days=3)


async def test_an_answer_cut_short_is_not_parsed(connect: Connect, scripted: Program) -> None:
    ai, sent = connect(scripted), body("record", text_format=Record, max_output_tokens=5)
    with pytest.raises(ValidationError):
        await settle(ai.responses.parse(**sent))
    async with opened(ai.responses.stream(**sent)) as helper:
        with pytest.raises(ValidationError):
            await settle(helper.until_done())


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        pytest.param({"format": {"type": "yaml"}}, "text.format.type", id="kind"),
        pytest.param({"format": {"type": "json_schema"}}, "text.format.schema", id="no-schema"),
        pytest.param(form({"type": "object", "minProperties": 2}), "text.format", id="keyword"),
        pytest.param({"format": "json"}, "text.format", id="word"),
        pytest.param("json", "text", id="no-object"),
    ],
)
async def test_a_form_that_cannot_be_kept_is_refused(
    connect: Connect, tiny_server: Program, asked: Any, param: str
) -> None:
    ai = connect(tiny_server)
    for stream in (False, True):
        sent = body(text=asked, stream=stream)
        error = await refused(openai.BadRequestError, ai.responses.create, **sent)
        assert (error.param, error.type) == (param, "invalid_request_error")


# Thoughts


async def thought(ai: Ai, said: Any = "think", /, *, budget: int = 5, **fields: Any) -> Response:
    extra = {"thinking_budget": budget, "logit_bias": LETTERS}
    given: Any = {"temperature": 0, "max_output_tokens": LENGTH, "extra_body": extra}
    return await thrice(ai, said, **given | fields)


async def test_thoughts_stand_before_the_message(connect: Connect, thinker: Program) -> None:
    answer = await thought(connect(thinker))
    assert kinds_of(answer) == ["reasoning", "message"]
    first = answer.output[0].to_dict()
    assert first["summary"] == []
    assert "encrypted_content" not in first
    assert len(thoughts_of(answer)) == 5
    # One more closes the block.
    assert len(answer.output_text) == LENGTH - 5 - 1
    assert answer.usage is not None
    assert answer.usage.output_tokens == LENGTH
    assert 5 <= answer.usage.output_tokens_details.reasoning_tokens <= 6


async def test_nothing_but_thoughts(connect: Connect, thinker: Program) -> None:
    """In one piece there is always a message, in a stream only where there are words."""
    extra = {"thinking_budget": LENGTH, "logit_bias": LETTERS}
    fields: Any = {"temperature": 0, "max_output_tokens": LENGTH, "extra_body": extra}
    ai = connect(thinker)
    whole = await respond(ai, "think", **fields)
    assert kinds_of(whole) == ["reasoning", "message"]
    pieces = (await events(ai, "think", **fields))[-1].response
    assert kinds_of(pieces) == ["reasoning"]
    for answer in (whole, pieces):
        assert (len(thoughts_of(answer)), answer.output_text) == (LENGTH, "")
        assert answer.status == "incomplete"
        assert answer.usage.output_tokens_details.reasoning_tokens == LENGTH


async def test_the_template_is_told_not_to_think(connect: Connect, thinker: Program) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "logit_bias": LETTERS}
    answer = await thought(connect(thinker), extra_body=extra)
    assert kinds_of(answer) == ["message"]
    assert len(answer.output_text) == LENGTH
    assert answer.usage is not None
    assert answer.usage.output_tokens_details.reasoning_tokens == 0


async def test_effort_is_repeated(connect: Connect, thinker: Program) -> None:
    asked: Any = {"effort": "low"}
    answer = await respond(connect(thinker), reasoning=asked, max_output_tokens=2)
    assert answer.reasoning is not None
    assert (answer.reasoning.effort, answer.reasoning.summary) == ("low", None)


async def test_a_summary_is_made_for_who_asks(connect: Connect, thinker: Program) -> None:
    """Clients that show summaries alone have the thoughts there."""
    asked: Any = {"summary": "auto"}
    answer = await thought(connect(thinker), reasoning=asked)
    first = answer.output[0]
    assert first.type == "reasoning"
    assert [part.text for part in first.summary] == [thoughts_of(answer)]
    assert len(thoughts_of(answer)) == 5
    assert answer.reasoning is not None
    assert answer.reasoning.summary == "auto"


@pytest.mark.parametrize("include", [None, SEALED], ids=["open", "sealed"])
async def test_thoughts_are_sent_back(connect: Connect, thinker: Program, include: Any) -> None:
    """All of the output, as it came; and the next answer is made from the same prompt."""
    ai = connect(thinker)
    answer = await thought(ai, include=include)
    turns: list[Any] = [turn("user", "think")]
    more = turn("user", "on")
    whole = [*turns, *answer.output, more]
    after = await thought(ai, whole)
    assert after.usage is not None
    assert after.usage.input_tokens == await count(ai, whole)
    as_dicts = [*turns, *(item.to_dict() for item in answer.output), more]
    assert await count(ai, as_dicts) == after.usage.input_tokens
    with_nulls = [*turns, *(item.model_dump() for item in answer.output), more]
    assert await count(ai, with_nulls) == after.usage.input_tokens
    without = [item for item in whole if getattr(item, "type", None) != "reasoning"]
    assert after.usage.input_tokens == await count(ai, without) + len(thoughts_of(answer)) + 2


async def test_sealed_thoughts_need_no_other(connect: Connect, thinker: Program) -> None:
    """A client that keeps nothing here sends back what it was given to keep."""
    ai = connect(thinker)
    answer = await thought(ai, include=SEALED, store=False)
    kept = answer.output[0].to_dict()
    assert unsealed(str(kept["encrypted_content"])) == thoughts_of(answer)
    sealed = {key: kept[key] for key in ("id", "type", "summary", "encrypted_content")}
    open_ = {key: kept[key] for key in ("id", "type", "summary", "content")}
    around = (turn("user", "think"), answer.output[1], turn("user", "on"))
    counts = [await count(ai, [around[0], item, around[1], around[2]]) for item in (sealed, open_)]
    assert counts[0] == counts[1] == await count(ai, [*around]) + len(thoughts_of(answer)) + 2


async def test_a_schema_binds_what_comes_after_the_thoughts(
    connect: Connect, thinker: Program
) -> None:
    answer = await thought(connect(thinker), budget=6, text=form(), max_output_tokens=120)
    assert len(thoughts_of(answer)) == 6
    check_small(answer.output_text)


async def test_thoughts_of_a_chain_are_not_read_again(connect: Connect, thinker: Program) -> None:
    ai = connect(thinker)
    answer = await thought(ai)
    said = turn("assistant", answer.output_text)
    alike = await count(ai, [turn("user", "think"), said, turn("user", "on")])
    assert await count(ai, "on", previous_response_id=answer.id) == alike


@pytest.mark.parametrize("budget", [-2, LENGTH + 1], ids=["below", "above"])
async def test_a_budget_out_of_range_is_refused(
    connect: Connect, thinker: Program, budget: int
) -> None:
    sent = body(max_output_tokens=LENGTH, extra_body={"thinking_budget": budget})
    error = await refused(openai.BadRequestError, connect(thinker).responses.create, **sent)
    assert error.param == "thinking_budget"
    assert str(budget) in error.message


async def test_a_result_follows_what_was_thought(connect: Connect, thinker: Program) -> None:
    """Thoughts, a call and its result in one turn: what agents send."""
    ai = connect(thinker)
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    thoughts = {"type": "reasoning", "summary": [], "content": [], "id": "rs_1"}
    named = openai.types.responses.ResponseFunctionToolCall.model_validate(call)
    sent = [turn("user", "go"), thoughts, call, result(named, "done")]
    assert (await thought(ai, sent)).usage is not None
    assert await count(ai, sent) == await count(ai, [sent[0], *sent[2:]])
