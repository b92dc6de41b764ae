"""Responses that are kept, through the official client: read, listed, gone on from, forgotten."""

from typing import Any

import openai
import pytest
from openai.types.responses import CompactedResponse

from mlxcel.protocols.responses.sealed import opened
from tests.whole.program import Program
from tests.whole.scenarios.asking import Ai, refused, settle
from tests.whole.scenarios.conftest import CALL, Connect
from tests.whole.scenarios.responder import (
    TOOLS,
    as_sent,
    body,
    calls_of,
    check,
    count,
    events,
    helped,
    respond,
    result,
    thrice,
    turn,
)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours


async def read(ai: Ai, id: str) -> dict[str, Any]:
    answer = await settle(ai.responses.retrieve(id))
    check(answer)
    return as_sent(answer)


async def items(ai: Ai, id: str, **query: Any) -> list[dict[str, Any]]:
    """All pages of them; each is of a type of its own."""
    found = ai.responses.input_items.list(id, **query)
    listed = [item async for item in found] if hasattr(found, "__aiter__") else list(found)
    for item in listed:
        type(item).model_validate(item.to_dict(), strict=True)
        assert type(item).model_fields["type"].annotation.__args__ == (item.type,)
    return [item.to_dict() for item in listed]


async def missing(ai: Ai, id: str) -> None:
    for call in (ai.responses.retrieve, ai.responses.cancel, ai.responses.input_items.list):
        error = await refused(openai.NotFoundError, call, response_id=id)
        assert (error.type, error.code) == ("not_found", None)
        assert id in error.message


# Read and forgotten


async def test_it_is_read_as_it_was_told(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    for fields in ({}, {"metadata": {"a": "b"}, "instructions": "x"}, {"max_output_tokens": 2}):
        answer = await respond(ai, "hello", **fields)
        assert await read(ai, answer.id) == as_sent(answer)
        told = (await events(ai, "call two", tools=TOOLS, **fields))[-1].response
        assert await read(ai, told.id) == as_sent(told)
        _, final = await helped(ai, "say and call", tools=TOOLS, **fields)
        assert await read(ai, final.id) == as_sent(final)


async def test_what_is_not_to_be_kept_is_not(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await thrice(ai, store=False)
    assert as_sent(answer)["store"] is False
    await missing(ai, answer.id)
    sent = body("on", previous_response_id=answer.id)
    error = await refused(openai.BadRequestError, ai.responses.create, **sent)
    assert error.param == "previous_response_id"


async def test_it_is_forgotten(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await respond(ai)
    assert await settle(ai.responses.delete(answer.id)) is None
    await missing(ai, answer.id)
    raw = await settle(ai.responses.with_raw_response.delete(answer.id))
    assert raw.http_response.json() == {
        "id": answer.id,
        "object": "response.deleted",
        "deleted": False,
    }


async def test_events_are_not_told_again(connect: Connect, scripted: Program) -> None:
    """Better an error than a stream of nothing."""
    ai = connect(scripted)
    found = await events(ai)
    id = found[-1].response.id
    error = await refused(
        openai.BadRequestError, ai.responses.retrieve, response_id=id, stream=True
    )
    assert (error.param, error.type) == ("stream", "invalid_request_error")
    with pytest.raises(openai.BadRequestError):
        await settle(ai.responses.retrieve(id, stream=True, starting_after=3))
    assert (await settle(ai.responses.retrieve(id, stream=False))).id == id


async def test_one_that_has_ended_is_marked(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await respond(ai)
    for _ in range(2):
        marked = await settle(ai.responses.cancel(answer.id))
        assert as_sent(marked) == as_sent(answer) | {"status": "cancelled"}
    assert (await settle(ai.responses.retrieve(answer.id))).status == "cancelled"


# Its input


async def test_its_input_is_listed(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    answer = await respond(ai, "héllo")
    [item] = await items(ai, answer.id)
    assert item.pop("id").startswith("msg_")
    assert item == {
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "héllo"}],
    }


async def test_items_of_every_kind_are_listed(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    first = await respond(ai, "call", tools=TOOLS)
    [call] = calls_of(first)
    sent = [
        turn("developer", "be kind"),
        turn("system", "be brief"),
        turn("user", "call"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
        call.to_dict(),
        result(call, "rain"),
        result(call, [{"type": "input_text", "text": "sun"}]),
        turn("assistant", "It rains."),
        turn("user", "hello"),
    ]
    answer = await respond(ai, sent)
    found = await items(ai, answer.id, order="asc")
    assert [item["type"] for item in found] == [item["type"] for item in sent]
    assert [item.get("role") for item in found] == [item.get("role") for item in sent]
    assert found[4]["id"] == call.id, "its own id"
    assert found[5]["output"] == "rain"
    assert len({item["id"] for item in found}) == len(found)


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_pages_follow_each_other(connect: Connect, scripted: Program, limit: int) -> None:
    ai = connect(scripted)
    answer = await respond(ai, [turn("user", f"number {n}") for n in range(7)])
    texts = [f"number {n}" for n in range(7)]
    for order, wanted in (("asc", texts), ("desc", texts[::-1])):
        found = await items(ai, answer.id, limit=limit, order=order)
        assert [item["content"][0]["text"] for item in found] == wanted
    page = await settle(ai.responses.input_items.list(answer.id, limit=limit))
    assert page.has_more == page.has_next_page() == (limit < 7)
    assert len(page.data) == min(limit, 7)
    after = page.data[-1].id
    rest = await items(ai, answer.id, limit=limit, after=after)
    assert [item["content"][0]["text"] for item in rest] == texts[::-1][min(limit, 7) :]


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "msg_none"}], ids=str
)
async def test_a_page_that_is_none(
    connect: Connect, scripted: Program, query: dict[str, Any]
) -> None:
    ai = connect(scripted)
    id = (await respond(ai)).id
    call = ai.responses.input_items.list
    error = await refused(openai.BadRequestError, call, response_id=id, **query)
    assert error.param == next(iter(query))


# Going on


async def test_a_chain_of_three(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    first = await respond(ai, "one", instructions="be brief")
    second = await respond(ai, "two", previous_response_id=first.id)
    third = await thrice(ai, "three", previous_response_id=second.id)
    assert third.previous_response_id == second.id
    assert third.instructions is None, "they are of one call alone"
    said = [("user", "one"), ("assistant", "one"), ("user", "two"), ("assistant", "two")]
    whole = [*(turn(role, text) for role, text in said), turn("user", "three")]
    assert third.usage is not None
    assert third.usage.input_tokens == await count(ai, whole)
    assert await count(ai, "three", previous_response_id=second.id) == await count(ai, whole)
    # Each has what came with its own call.
    assert len(await items(ai, third.id)) == 1


async def test_a_chain_may_fork(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    root = await respond(ai, "root")
    left = await respond(ai, "left, and some more words", previous_response_id=root.id)
    right = await respond(ai, "right", previous_response_id=root.id)
    sizes = [await count(ai, "on", previous_response_id=end.id) for end in (left, right)]
    assert sizes[0] - sizes[1] == 2 * (len("left, and some more words") - len("right"))


async def test_a_chain_that_lacks_a_link(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    first = await respond(ai, "one")
    second = await respond(ai, "two", previous_response_id=first.id)
    await settle(ai.responses.delete(first.id))
    for previous in (first.id, second.id, "resp_none"):
        for stream in (False, True):
            sent = body("three", previous_response_id=previous, stream=stream)
            error = await refused(openai.BadRequestError, ai.responses.create, **sent)
            assert error.param == "previous_response_id"
            assert previous in error.message
    assert (await settle(ai.responses.retrieve(second.id))).id == second.id


async def test_an_item_is_named_by_its_id(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    first = await respond(ai, "call", tools=TOOLS)
    [call] = calls_of(first)
    tail = [result(call, "rain"), turn("user", "and so")]
    named = [turn("user", "call"), {"type": "item_reference", "id": call.id}, *tail]
    whole = [turn("user", "call"), call, *tail]
    answer = await thrice(ai, named, tools=TOOLS)
    assert answer.output_text == "It rains in Oslo."
    assert await count(ai, named) == await count(ai, whole)
    sent = body([{"type": "item_reference", "id": "fc_none"}])
    error = await refused(openai.BadRequestError, ai.responses.create, **sent)
    assert error.param == "input[0].id"


# The bare id is the contract's; OpenAI's type has an object around it, and the SDK says so.
@pytest.mark.filterwarnings("ignore:Pydantic serializer")
@pytest.mark.parametrize("form", ["string", "object"])
async def test_a_conversation_goes_on(connect: Connect, scripted: Program, form: str) -> None:
    ai = connect(scripted)
    name = f"conv_{form}_{type(ai).__name__}"
    said: Any = name if form == "string" else {"id": name}
    first = await respond(ai, "one", conversation=said)
    assert as_sent(first)["conversation"] == name
    told = (await events(ai, "two", conversation=said))[-1].response
    assert told.output_text == "two"
    whole = [
        *(turn(role, text) for text in ("one", "two") for role in ("user", "assistant")),
        turn("user", "three"),
    ]
    assert await count(ai, "three", conversation=said) == await count(ai, whole)
    await respond(ai, "not kept", conversation=said, store=False)
    assert await count(ai, "three", conversation=said) == await count(ai, whole)
    sent = body("x", conversation=said, previous_response_id=first.id)
    error = await refused(openai.BadRequestError, ai.responses.create, **sent)
    assert error.param == "conversation"


# Counted, summed up


async def test_tokens_are_counted(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    fields: Any = {"instructions": "be brief", "tools": TOOLS}
    answer = await respond(ai, "call", **fields)
    assert answer.usage is not None
    assert await count(ai, "call", **fields) == answer.usage.input_tokens
    counted = await settle(ai.responses.input_tokens.count(input="hello"))
    assert counted.input_tokens == await count(ai, "hello")
    call = ai.responses.input_tokens.count
    error = await refused(openai.BadRequestError, call, **body("x", previous_response_id="resp_0"))
    assert error.param == "previous_response_id"


async def test_turns_are_summed_up(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    first = await respond(ai, "a story")
    for sent in (body("a story"), {"model": "any", "previous_response_id": first.id}):
        summed = await settle(ai.responses.compact(**sent, instructions="in one line"))
        CompactedResponse.model_validate(summed.to_dict(), strict=True)
        assert set(summed.to_dict()) == {"id", "object", "created_at", "output", "usage"}
        [item] = summed.output
        assert item.type == "compaction"
        # Our script repeats what it was asked for.
        assert "in one line" in (opened(item.encrypted_content) or "")
        await missing(ai, summed.id)
        after = await thrice(ai, [*summed.output, turn("user", "and so")])
        assert after.output_text == "It rains in Oslo."
        assert after.usage is not None
        said = turn("system", opened(item.encrypted_content))
        assert after.usage.input_tokens == await count(ai, [said, turn("user", "and so")])


async def test_nothing_cannot_be_summed_up(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    error = await refused(openai.BadRequestError, ai.responses.compact, **body(" "))
    assert error.param == "input"
    foreign = {"type": "compaction", "encrypted_content": "gAAAA"}
    error = await refused(openai.BadRequestError, ai.responses.create, **body([foreign]))
    assert error.param == "input[0].encrypted_content"


async def test_calls_that_were_text_are_text_again(connect: Connect, scripted: Program) -> None:
    """What was said without tools is not read as a call when it comes back."""
    ai = connect(scripted)
    first = await respond(ai, "call")
    assert first.output_text == CALL
    after = await respond(ai, "and so", previous_response_id=first.id, tools=TOOLS)
    assert after.output_text == "It rains in Oslo."
