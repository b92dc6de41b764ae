"""Responses as events: their order, what the SDK's helper makes of them, and streams that break."""

import json
from typing import Any

import openai
import pytest

from tests.whole.program import Program
from tests.whole.scenarios.asking import first, opened, refused, settle
from tests.whole.scenarios.conftest import CALL, KEY, PREFIX, SECOND, Connect
from tests.whole.scenarios.responder import (
    CITY,
    TOOLS,
    as_sent,
    body,
    deltas,
    events,
    helped,
    respond,
    thoughts_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

ECHO = {"model": "echo"}
WORDS = (
    *("output_item.added", "content_part.added", "output_text.delta"),
    *("output_text.done", "content_part.done", "output_item.done"),
)
CALLED = (
    *("output_item.added", "function_call_arguments.delta"),
    *("function_call_arguments.done", "output_item.done"),
)
THOUGHT = ("output_item.added", "reasoning_text.delta", "reasoning_text.done", "output_item.done")
LETTERS = {str(byte): 100 for byte in range(ord("a"), ord("z") + 1)}


def steps(found: list[Any]) -> list[str]:
    """The kinds in their order; deltas of the same kind in a row are one."""
    kinds = [event.type.removeprefix("response.") for event in found]
    return [
        kind
        for n, kind in enumerate(kinds)
        if not (kind.endswith(".delta") and n and kinds[n - 1] == kind)
    ]


def told(*items: tuple[str, ...]) -> list[str]:
    return ["created", "in_progress", *(step for item in items for step in item), "completed"]


# Order


@pytest.mark.parametrize(
    ("text", "items"),
    [
        pytest.param("hello", [WORDS], id="text"),
        pytest.param("call", [CALLED], id="call"),
        pytest.param("call two", [CALLED, CALLED], id="two-calls"),
        pytest.param("say and call", [WORDS, CALLED], id="text-and-call"),
        pytest.param(f"so {CALL}{SECOND}", [WORDS, CALLED, CALLED], id="text-and-two-calls"),
    ],
)
async def test_events_come_in_order(
    connect: Connect, scripted: Program, text: str, items: list[tuple[str, ...]]
) -> None:
    ai = connect(scripted)
    assert steps(await events(ai, text, tools=TOOLS)) == told(*items)
    found, final = await helped(ai, text, tools=TOOLS)
    assert steps(found) == told(*items)
    assert len(final.output) == len(items)


@pytest.mark.parametrize(
    ("budget", "items"),
    [
        pytest.param(5, [THOUGHT, WORDS], id="thought-and-text"),
        pytest.param(24, [THOUGHT], id="thought"),
        pytest.param(0, [WORDS], id="text"),
    ],
)
async def test_thoughts_come_first(
    connect: Connect, thinker: Program, budget: int, items: list[tuple[str, ...]]
) -> None:
    extra = {"thinking_budget": budget, "logit_bias": LETTERS}
    fields: Any = {"temperature": 0, "max_output_tokens": 24, "extra_body": extra}
    ai = connect(thinker)
    found = await events(ai, "think", **fields)
    # A random model never comes to its own end.
    assert steps(found) == [*told(*items)[:-1], "incomplete"]
    final = found[-1].response
    assert deltas(found, "reasoning_text") == thoughts_of(final)
    assert deltas(found) == final.output_text
    assert "<think>" not in final.output_text
    assert [item.status for item in final.output][-1] == "incomplete"
    assert {item.status for item in final.output[:-1]} <= {"completed"}


async def test_the_first_event_knows_what_was_asked(connect: Connect, scripted: Program) -> None:
    said: Any = {"instructions": "be brief", "tools": TOOLS, "metadata": {"a": "b"}}
    found = await events(connect(scripted), "hello", **said, max_output_tokens=50)
    begun, ended = (as_sent(event.response) for event in (found[0], found[-1]))
    assert {key for key in begun if begun[key] != ended[key]} <= {
        *("status", "completed_at", "output", "output_text", "usage"),
    }
    assert (begun["completed_at"], begun["usage"], begun["output"]) == (None, None, [])


async def test_the_helper_keeps_what_came_so_far(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    found, final = await helped(ai, "a text of some words")
    so_far = ""
    for event in (event for event in found if event.type == "response.output_text.delta"):
        so_far += event.delta
        assert event.snapshot == so_far
    [done] = [event for event in found if event.type == "response.output_text.done"]
    assert done.text == so_far == final.output_text == "a text of some words"
    found, final = await helped(ai, "call", tools=TOOLS)
    pieces = [e for e in found if e.type == "response.function_call_arguments.delta"]
    assert pieces[-1].snapshot == '{"city":"Oslo"}'


async def test_the_helper_parses_arguments(connect: Connect, scripted: Program) -> None:
    strict = [CITY | {"strict": True}]
    found, final = await helped(connect(scripted), "call", tools=strict)
    [call] = final.output
    assert call.parsed_arguments == {"city": "Oslo"}  # type: ignore[union-attr]
    assert found[-1].response.output == final.output


async def test_frames_are_named_and_end_without_a_mark(connect: Connect, scripted: Program) -> None:
    create = connect(scripted).responses.with_streaming_response.create
    async with opened(create(**body("hello", stream=True))) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-request-id"].startswith("resp_")
        raw = (await settle(response.read())).decode()
    frames = [frame for frame in raw.split("\n\n") if frame and not frame.startswith(":")]
    for frame in frames:
        name, data = frame.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"
    assert "[DONE]" not in raw
    assert frames[-1].startswith("event: response.completed\n")
    assert response.headers["x-request-id"] in frames[-1]


async def test_options_of_a_stream_change_nothing(connect: Connect, scripted: Program) -> None:
    for wanted in (True, False):
        options = {"include_obfuscation": wanted}
        found = await events(connect(scripted), "hello", stream_options=options)
        assert deltas(found) == "hello"
        assert all("obfuscation" not in event.to_dict() for event in found)


# Failures


@pytest.mark.parametrize(
    ("text", "said"), [("break late", "brea"), ("break", "")], ids=["late", "at-once"]
)
async def test_a_failure_is_the_last_event(
    connect: Connect, scripted: Program, text: str, said: str
) -> None:
    ai = connect(scripted)
    found = await events(ai, text)
    assert deltas(found) == said
    assert found[-1].type == "response.failed"
    failed = found[-1].response
    assert (failed.status, failed.error.code) == ("failed", "server_error")
    assert (failed.completed_at, failed.usage) == (None, None)
    assert [item.status for item in failed.output] == ["incomplete"] * bool(said)
    error = await refused(openai.NotFoundError, ai.responses.retrieve, response_id=failed.id)
    assert error.type == "not_found", "what failed is not kept"
    assert (await respond(ai, "on")).output_text == "on"


async def test_the_helper_tells_of_a_failure(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    found, final = await helped(ai, "break late")
    assert (found[-1].type, final.status) == ("response.failed", "failed")
    async with opened(ai.responses.stream(**body("break late"))) as helper:
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            await settle(helper.get_final_response())


async def test_a_failure_in_one_piece_is_an_error(connect: Connect, scripted: Program) -> None:
    for text in ("break", "break late"):
        ai = connect(scripted)
        error = await refused(openai.InternalServerError, ai.responses.create, **body(text))
        assert (error.status_code, error.type) == (500, "server_error")


async def test_what_is_refused_is_refused_before_the_stream(
    connect: Connect, scripted: Program
) -> None:
    ai = connect(scripted)
    sent = body("hello", stream=True, temperature="hot")
    error = await refused(openai.BadRequestError, ai.responses.create, **sent)
    assert error.param == "temperature"
    with pytest.raises(openai.BadRequestError):
        await helped(ai, "hello", temperature="hot")


# Streams that end early: they are timed, so nothing else runs beside them


@pytest.mark.whole
async def test_a_stream_that_is_left_gives_its_slot_back(connect: Connect, narrow: Program) -> None:
    ai = connect(narrow, path=f"{PREFIX}/v1", api_key=KEY)
    sent, ids = body("long " * 200, **ECHO), []
    for _ in range(2):
        async with opened(await settle(ai.responses.create(**sent, stream=True))) as stream:
            ids.append((await first(stream, 5))[0].response.id)
    async with opened(ai.responses.stream(**sent)) as helper:
        is_async = hasattr(helper, "__aiter__")
        begun = await anext(aiter(helper)) if is_async else next(helper)
        ids.append(begun.response.id)
    assert (await respond(ai, "ok", timeout=2.0, **ECHO)).output_text == "ok"
    for id in ids:
        await refused(openai.NotFoundError, ai.responses.retrieve, response_id=id)


@pytest.mark.whole
async def test_a_client_that_waits_no_longer(connect: Connect, narrow: Program) -> None:
    ai = connect(narrow, path=f"{PREFIX}/v1", api_key=KEY)
    with pytest.raises(openai.APITimeoutError):
        await settle(ai.responses.create(**body("slow" * 100, **ECHO), timeout=0.3))
    assert (await respond(ai, "ok", timeout=2.0, **ECHO)).output_text == "ok"


@pytest.mark.whole
async def test_one_that_runs_is_cancelled(connect: Connect, narrow: Program) -> None:
    ai = connect(narrow, path=f"{PREFIX}/v1", api_key=KEY)
    stream = await settle(ai.responses.create(**body("long " * 200, **ECHO), stream=True))
    found = await first(stream, 6)
    id = found[0].response.id
    # While it runs it is not there to be read, or to go on from.
    await refused(openai.NotFoundError, ai.responses.retrieve, response_id=id)
    marked = await settle(ai.responses.cancel(id))
    assert (marked.id, marked.object, marked.status) == (id, "response", "cancelled")
    rest = [event async for event in stream] if hasattr(stream, "__aiter__") else list(stream)
    assert rest[-1].type == "response.failed"
    assert (rest[-1].response.status, rest[-1].response.error) == ("cancelled", None)
    assert rest[-1].response.output_text == deltas([*found, *rest])
    await refused(openai.NotFoundError, ai.responses.retrieve, response_id=id)
    assert (await respond(ai, "ok", timeout=2.0, **ECHO)).output_text == "ok"
