"""Messages through Anthropic's official client: whole, streamed, counted, refused."""

import re
from typing import Any

import anthropic
import httpx
import pytest

from tests.whole.program import Program
from tests.whole.scenarios.asking import opened, settle
from tests.whole.scenarios.claude import (
    Claude,
    Reach,
    body,
    both,
    listed,
    message,
    raw_events,
    reach,
    read_tokens,
    refused,
    streamed,
    streaming,
    text_of,
)
from tests.whole.scenarios.conftest import KEY, PREFIX

__all__ = ["reach"]
pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # undisturbed by neighbours

ECHO = {"model": "echo"}
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def block(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": text} | fields


def turns(*said: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in said]


# Answers


async def test_an_answer(reach: Reach, scripted: Program) -> None:
    answer = await both(reach(scripted), "hello")
    assert (text_of(answer), answer.stop_reason) == ("hello", "end_turn")
    assert (answer.model, answer.role, answer.type) == ("echo", "assistant", "message")


async def test_blocks_are_joined(reach: Reach, scripted: Program) -> None:
    ai = reach(scripted)
    plain = await message(ai, "a\nb")
    cut = [block("a", cache_control={"type": "ephemeral"}), block("b")]
    answer = await message(ai, messages=turns(("user", cut)))
    assert text_of(answer) == "a\nb"
    assert read_tokens(answer) == read_tokens(plain)


async def test_a_document_is_text(reach: Reach, scripted: Program) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "all of it"}
    sent = turns(("user", [{"type": "document", "source": source, "title": "t"}]))
    assert text_of(await message(reach(scripted), messages=sent)) == "all of it"


async def test_the_limit_ends_an_answer(reach: Reach, scripted: Program) -> None:
    answer = await both(reach(scripted), "abcdef", max_tokens=3)
    assert (text_of(answer), answer.stop_reason) == ("abc", "max_tokens")
    assert answer.usage.output_tokens == 3


async def test_a_stop_sequence_is_told(reach: Reach, scripted: Program) -> None:
    answer = await both(reach(scripted), "one. two! three", stop_sequences=["!", ". "])
    assert (text_of(answer), answer.stop_sequence) == ("one", ". ")
    assert (await both(reach(scripted), "one", stop_sequences=["x"])).stop_reason == "end_turn"


async def test_numbers_that_steer(reach: Reach, thinker: Program) -> None:
    fields: Any = {"temperature": 0.0, "top_p": 0.9, "top_k": 1, "max_tokens": 8}
    ai = reach(thinker)
    assert text_of(await message(ai, **fields)) == text_of(await message(ai, **fields))


@pytest.mark.parametrize(
    "system",
    [
        pytest.param("be brief", id="string"),
        pytest.param([block("be brief", cache_control={"type": "ephemeral"})], id="blocks"),
    ],
)
async def test_forms_of_the_system_text(reach: Reach, thinker: Program, system: Any) -> None:
    ai = reach(thinker)
    bare, full = await count(ai), await count(ai, system=system)
    assert full == await count(ai, system="be brief") >= bare + len("be brief")
    assert await count(ai, system=" ") == bare
    assert read_tokens(await message(ai, system=system, max_tokens=2)) == full


async def test_system_turns_among_the_others(reach: Reach, scripted: Program) -> None:
    ai = reach(scripted)
    sent = turns(("user", "a"), ("system", "b"), ("user", "c"))
    assert text_of(await message(ai, messages=sent)) == "b\n\nc"
    assert text_of(await message(ai, messages=sent[:2])) == "a\n\nb"
    alike = turns(("user", "a"), ("user", "b\n\nc"))
    assert await count(ai, messages=sent) == await count(ai, messages=alike)


async def test_an_answer_that_is_begun_goes_on(reach: Reach, thinker: Program) -> None:
    begun = turns(("user", "hello"), ("assistant", "Well"))
    answer = await message(reach(thinker), messages=begun, max_tokens=4)
    assert answer.stop_reason in ("max_tokens", "end_turn")


async def test_fields_of_a_newer_client_are_no_trouble(reach: Reach, scripted: Program) -> None:
    more = {"container": None, "betas": ["x"], "mcp_servers": [], "service_tier": "auto"}
    headers = {"anthropic-beta": "tools-2024-05-16", "anthropic-version": "2023-06-01"}
    ai = reach(scripted)
    assert text_of(await message(ai, extra_body=more, extra_headers=headers)) == "hello"
    beta = await settle(ai.beta.messages.create(**body("hello"), betas=["files-api-2025-04-14"]))
    assert beta.content[0].text == "hello"


async def test_a_conversation_finds_what_was_read(reach: Reach, thinker: Program) -> None:
    ai, long = reach(thinker), "many words of one session, " * 12
    fields: Any = {"metadata": {"user_id": f"eve-{type(ai).__name__}"}, "max_tokens": 2}
    first = await message(ai, long, **fields)
    assert first.usage.cache_read_input_tokens == 0
    second = await message(ai, f"{long} and more", **fields)
    assert second.usage.cache_read_input_tokens is not None
    assert second.usage.cache_read_input_tokens > len(long) - 64
    assert read_tokens(second) == await count(ai, f"{long} and more")


# Streams


async def test_events_come_in_order(reach: Reach, scripted: Program) -> None:
    found = await raw_events(reach(scripted), "hello")
    kinds = [event.type for event in found]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    start = found[0].message
    assert (start.content, start.stop_reason, start.usage.output_tokens) == ([], None, 0)
    assert start.usage.input_tokens > 0
    assert found[-2].usage.output_tokens > 0
    assert {event.index for event in found[1:-2]} == {0}


async def test_text_of_the_helper(reach: Reach, scripted: Program) -> None:
    ai = reach(scripted)
    async with streaming(ai, "hello there") as helper:
        pieces = await listed(ai, helper.text_stream)
        assert "".join(pieces) == "hello there"
        assert await settle(helper.get_final_text()) == "hello there"


async def test_events_of_the_helper(reach: Reach, scripted: Program) -> None:
    ai = reach(scripted)
    async with streaming(ai, "hello") as helper:
        found = await listed(ai, helper)
    texts = [event for event in found if event.type == "text"]
    assert texts[-1].snapshot == "hello"
    stopped = [event for event in found if event.type == "content_block_stop"]
    assert [event.content_block.text for event in stopped] == ["hello"]
    assert found[-1].message.stop_reason == "end_turn"


async def test_a_stream_that_is_left_frees_its_row(reach: Reach, narrow: Program) -> None:
    ai = reach(narrow, path=PREFIX, api_key=KEY)
    async with streaming(ai, "x" * 60, **ECHO) as helper:
        assert (await first_of(ai, helper)).type == "message_start"
    assert text_of(await message(ai, "ok", **ECHO)) == "ok"


async def first_of(ai: Claude, helper: Any) -> Any:
    return await anext(aiter(helper)) if hasattr(helper, "__aiter__") else next(iter(helper))


async def test_a_failure_ends_a_stream_as_an_error(reach: Reach, scripted: Program) -> None:
    ai = reach(scripted)
    with pytest.raises(anthropic.APIStatusError) as caught:
        await streamed(ai, "break late")
    assert error_of(caught.value)["type"] == "api_error"
    assert text_of(await message(ai, "ok")) == "ok"


def error_of(error: anthropic.APIStatusError) -> dict[str, Any]:
    assert isinstance(error.body, dict)
    assert error.body["type"] == "error"
    assert set(error.body["error"]) == {"type", "message"}
    found = error.body["error"]
    assert isinstance(found, dict)
    return found


async def test_frames_are_named_and_a_ping_comes(scripted: Program) -> None:
    sent = body("hello", stream=True)
    reply = httpx.post(f"{scripted.url}/v1/messages", json=sent)
    assert reply.headers["content-type"].startswith("text/event-stream")
    names = re.findall(r"^event: (\w+)$", reply.text, re.MULTILINE)
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names == re.findall(r'^data: {"type":"(\w+)"', reply.text, re.MULTILINE)
    assert "[DONE]" not in reply.text


# Counting


async def count(ai: Claude, text: str = "hello", **fields: Any) -> int:
    sent = body(text, **fields)
    del sent["max_tokens"]
    counted = await settle(ai.messages.count_tokens(**sent))
    assert counted.to_dict() == {"input_tokens": counted.input_tokens}
    return int(counted.input_tokens)


CLOCK = {"name": "clock", "description": "d", "input_schema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="plain"),
        pytest.param({"system": [block("s"), block("t")]}, id="system"),
        pytest.param({"tools": [CLOCK]}, id="tools"),
        pytest.param({"thinking": {"type": "enabled", "budget_tokens": 1}}, id="thinking"),
        pytest.param({"messages": turns(("user", "a"), ("assistant", "b"))}, id="begun"),
    ],
)
async def test_a_count_is_what_is_read(
    reach: Reach, scripted: Program, thinker: Program, fields: dict[str, Any]
) -> None:
    for program in (scripted, thinker):
        ai = reach(program)
        answer = await message(ai, **fields, max_tokens=2)
        assert await count(ai, **fields) == read_tokens(answer)


async def test_the_count_route_takes_a_query(scripted: Program) -> None:
    for path in ("/v1/messages/count_tokens?beta=true", "/messages/count_tokens"):
        status, answer = scripted.post(path, {"model": "any", "messages": turns(("user", "hi"))})
        assert (status, list(answer)) == (200, ["input_tokens"])
        assert answer["input_tokens"] > 0


STAMP = "x-anthropic-billing-header: cc_version=2.1.37.{0}; cc_entrypoint=cli; cch={0}20;"


async def test_stamps_share_what_was_read(reach: Reach, thinker: Program) -> None:
    ai = reach(thinker)
    used = []
    for stamp in ("a9c", "b1d"):
        system = [block(STAMP.format(stamp)), block("You are brief. " * 10)]
        fields: Any = {"metadata": {"user_id": f"stamp-{type(ai).__name__}"}, "system": system}
        used.append((await message(ai, f"and {stamp}", **fields, max_tokens=2)).usage)
    assert used[0].cache_read_input_tokens == 0
    assert used[1].cache_read_input_tokens is not None
    assert used[1].cache_read_input_tokens > 100


# Refusals


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        pytest.param({"max_tokens": -1}, "max_tokens", id="limit"),
        pytest.param({"messages": []}, "messages", id="no-messages"),
        pytest.param({"temperature": "hot"}, "temperature", id="wrong-type"),
        pytest.param({"system": [PIXEL]}, "system[0].type", id="system"),
        pytest.param({"tool_choice": {"type": "any"}}, "tool_choice", id="no-tools"),
        pytest.param(
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            "thinking.budget_tokens",
            id="budget",
        ),
        pytest.param(
            {"messages": turns(("user", [{"type": "text"}]))}, "messages[0].content[0].text", id="b"
        ),
    ],
)
async def test_a_wrong_field_is_a_bad_request(
    reach: Reach, scripted: Program, fields: dict[str, Any], named: str
) -> None:
    ai = reach(scripted)
    calls: list[tuple[Any, Any]] = [
        (ai.messages.create, {}),
        (ai.messages.create, {"stream": True}),
    ]
    if not fields.keys() & {"max_tokens", "temperature", "thinking"}:
        calls.append((ai.messages.count_tokens, {"max_tokens": None}))
    for call, more in calls:
        sent = body(**fields | more)
        if more == {"max_tokens": None}:
            del sent["max_tokens"]
        error = error_of(await refused(anthropic.BadRequestError, call, **sent))
        assert error["type"] == "invalid_request_error"
        assert named in error["message"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([block("what is this?"), PIXEL], id="user"),
        pytest.param(
            [block("a"), {"type": "tool_result", "tool_use_id": "c", "content": [PIXEL]}],
            id="result",
        ),
    ],
)
async def test_an_image_is_refused_by_name(reach: Reach, scripted: Program, content: Any) -> None:
    ai = reach(scripted)
    for call in (ai.messages.create, ai.messages.count_tokens):
        sent = body(messages=turns(("user", content)))
        if call == ai.messages.count_tokens:
            del sent["max_tokens"]
        with pytest.raises(anthropic.APIStatusError) as caught:
            await settle(call(**sent))
        error = error_of(caught.value)
        assert (caught.value.status_code, error["type"]) == (501, "not_supported_error")
        assert "messages[0].content[1]" in error["message"]


async def test_a_wrong_key_is_an_authentication_error(reach: Reach, narrow: Program) -> None:
    ai = reach(narrow, path=PREFIX, api_key="sk-wrong")
    await refused(anthropic.AuthenticationError, ai.messages.create, **body(**ECHO))


async def test_both_kinds_of_key_are_taken(reach: Reach, narrow: Program) -> None:
    for given in ({"api_key": KEY}, {"api_key": None, "auth_token": KEY}):
        ai = reach(narrow, path=PREFIX, **given)
        assert text_of(await message(ai, "ok", **ECHO)) == "ok"


async def test_another_model_may_be_refused(reach: Reach, narrow: Program) -> None:
    ai = reach(narrow, path=PREFIX, api_key=KEY)
    error = await refused(anthropic.NotFoundError, ai.messages.create, **body(model="claude-none"))
    assert error_of(error)["type"] == "not_found_error"


async def test_a_large_body_is_too_large(reach: Reach, narrow: Program) -> None:
    ai = reach(narrow, path=PREFIX, api_key=KEY)
    with pytest.raises(anthropic.APIStatusError) as caught:
        await message(ai, "x" * 30_000, **ECHO)
    assert caught.value.status_code == 413


async def test_a_failure_before_the_answer_is_an_api_error(reach: Reach, scripted: Program) -> None:
    error = await refused(
        anthropic.InternalServerError, reach(scripted).messages.create, **body("break")
    )
    assert error_of(error)["type"] == "api_error"
    assert error.status_code == 500


async def test_headers_can_be_read(reach: Reach, scripted: Program) -> None:
    raw = await settle(reach(scripted).messages.with_raw_response.create(**body("hello")))
    assert text_of(await settle(raw.parse())) == "hello"
    assert raw.headers["x-request-id"]
    assert raw.headers["x-cache-status"]


async def test_headers_of_a_stream(reach: Reach, scripted: Program) -> None:
    create = reach(scripted).messages.with_streaming_response.create
    async with opened(create(**body("hello", stream=True))) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
