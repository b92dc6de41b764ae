"""What stands around a response: keys, addresses, headers, errors, and a server that is busy."""

import asyncio
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.whole.program import Program
from tests.whole.scenarios.asking import Ai, first, listed, opened, refused, settle, together
from tests.whole.scenarios.conftest import KEY, PREFIX, Connect
from tests.whole.scenarios.responder import body, check, check_events, respond, thrice

pytestmark = [pytest.mark.whole, pytest.mark.asyncio]

ECHO = {"model": "echo"}
"""The only name that the narrow server answers to."""


def inside(connect: Connect, narrow: Program, **options: Any) -> Ai:
    return connect(narrow, path=f"{PREFIX}/v1", **{"api_key": KEY} | options)


def all_calls(ai: Ai) -> list[tuple[Any, dict[str, Any]]]:
    """Whatever the SDK has for this API."""
    one: dict[str, Any] = {"response_id": "resp_0"}
    return [
        (ai.responses.create, body(**ECHO)),
        (ai.responses.create, body(**ECHO, stream=True)),
        (ai.responses.parse, body(**ECHO)),
        (ai.responses.compact, body(**ECHO)),
        (ai.responses.input_tokens.count, body(**ECHO)),
        (ai.responses.retrieve, one),
        (ai.responses.delete, one),
        (ai.responses.cancel, one),
        (ai.responses.input_items.list, one),
    ]


# Keys and addresses


async def test_a_wrong_key_opens_nothing(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow, api_key="sk-wrong")
    for call, sent in all_calls(ai):
        error = await refused(openai.AuthenticationError, call, **sent)
        assert (error.code, error.type) == ("invalid_api_key", "invalid_api_key")
    with pytest.raises(openai.AuthenticationError):
        async with opened(ai.responses.stream(**body(**ECHO))):
            pass


async def test_the_server_may_know_its_model_alone(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow)
    for call in (ai.responses.create, ai.responses.compact, ai.responses.input_tokens.count):
        error = await refused(openai.NotFoundError, call, **body(model="gpt-none"))
        assert (error.code, error.param) == ("model_not_found", "model")
    assert (await respond(ai, "ok", **ECHO)).model == "echo"


async def test_both_addresses_are_the_same(connect: Connect, scripted: Program) -> None:
    """With the version in it, and without."""
    bare, full = connect(scripted, path=""), connect(scripted)
    answer = await thrice(bare, "hello")
    assert (await settle(full.responses.retrieve(answer.id))).id == answer.id
    assert (await settle(bare.responses.retrieve(answer.id))).id == answer.id


async def test_headers_of_an_organization_are_no_trouble(
    connect: Connect, scripted: Program
) -> None:
    ai = connect(scripted, organization="org-1", project="proj-1", default_query={"v": "1"})
    answer = await respond(ai, extra_headers={"X-Priority": "high", "OpenAI-Beta": "responses=v1"})
    assert answer.output_text == "hello"


# Headers of an answer


async def test_headers_can_be_read(connect: Connect, scripted: Program) -> None:
    raw = await settle(connect(scripted).responses.with_raw_response.create(**body()))
    answer = raw.parse()
    check(answer)
    assert raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-request-id"] == answer._request_id == answer.id
    assert raw.headers["x-cache-status"]


async def test_headers_of_a_stream_come_before_it(connect: Connect, tiny_server: Program) -> None:
    create = connect(tiny_server).responses.with_streaming_response.create
    async with opened(create(**body(stream=True, max_output_tokens=3))) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-cache-status"]
        found = await listed(await settle(response.parse()))
    check_events(found)
    assert response.headers["x-request-id"] == found[-1].response.id
    assert found[-1].type == "response.incomplete"


# Errors


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"model": openai.omit}, "model", id="no-model"),
        pytest.param({"input": openai.omit}, "input", id="no-input"),
        pytest.param({"input": 1}, "input", id="input-type"),
        pytest.param({"input": ["x"]}, "input[0]", id="item-type"),
        pytest.param({"input": [{"type": "noise"}]}, "input[0].type", id="item-kind"),
        pytest.param({"input": [{"content": "x"}]}, "input[0].type", id="item-without-kind"),
        pytest.param({"input": [{"role": "bot", "content": "x"}]}, "input[0].role", id="role"),
        pytest.param({"input": [{"role": "user"}]}, "input[0].content", id="no-content"),
        pytest.param(
            {"input": [{"type": "function_call_output", "output": "x"}]},
            "input[0].call_id",
            id="no-call",
        ),
        pytest.param(
            {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
            "input[0].content[0].type",
            id="file",
        ),
        pytest.param({"background": True}, "background", id="background"),
        pytest.param({"truncation": "auto"}, "truncation", id="truncation"),
        pytest.param({"max_output_tokens": 0}, "max_output_tokens", id="no-tokens"),
        pytest.param({"temperature": "hot"}, "temperature", id="type"),
        pytest.param({"top_logprobs": 21}, "top_logprobs", id="alternatives"),
        pytest.param({"metadata": {str(n): "x" for n in range(17)}}, "metadata", id="17-entries"),
        pytest.param({"metadata": {"n": 1}}, "metadata", id="metadata-value"),
        pytest.param({"conversation": {"name": "c"}}, "conversation.id", id="conversation"),
        pytest.param({"include": [1]}, "include", id="include"),
        pytest.param({"extra_body": {"top_k": -1}}, "top_k", id="extra"),
    ],
)
async def test_a_wrong_field_is_a_bad_request(
    connect: Connect, scripted: Program, fields: dict[str, Any], param: str
) -> None:
    ai = connect(scripted)
    for stream in (False, True):
        sent = body(stream=stream) | fields
        error = await refused(openai.BadRequestError, ai.responses.create, **sent)
        assert (error.param, error.type, error.code) == (param, "invalid_request_error", None)
        assert error.request_id is not None
        assert param.split("[")[0].split(".")[0] in error.message


async def test_sixteen_entries_are_not_too_many(connect: Connect, scripted: Program) -> None:
    entries = {f"key {n}": "x" * 99 for n in range(16)}
    answer = await respond(connect(scripted), metadata=entries)
    assert answer.metadata == entries


async def test_a_prompt_beyond_the_window(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    for call, stream in ((ai.responses.create, {"stream": True}), (ai.responses.create, {})):
        error = await refused(openai.BadRequestError, call, **body("x" * 5000), **stream)
        assert (error.code, error.param) == ("context_length_exceeded", "input")


async def test_what_is_no_json_is_a_415(connect: Connect, scripted: Program) -> None:
    ai, headers = connect(scripted), {"Content-Type": "text/plain"}
    error = await refused(
        openai.APIStatusError, ai.responses.create, **body(), extra_headers=headers
    )
    assert (error.status_code, error.type) == (415, "invalid_request_error")


async def test_what_is_too_large_is_a_413(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow)
    sent = body("x" * 30_000, **ECHO)
    error = await refused(openai.APIStatusError, ai.responses.create, **sent)
    assert (error.status_code, error.type) == (413, "invalid_request_error")


# A server that is busy, clients that leave


async def test_a_full_queue_is_a_503_that_may_be_tried_again(
    connect: Connect, narrow: Program
) -> None:
    ai = inside(connect, narrow)

    def asked() -> Any:
        return ai.responses.create(**body("x" * 20, **ECHO))

    def kept() -> Any:
        try:
            return asked()
        except openai.InternalServerError as error:
            return error

    found: list[Any] = await (
        together(ai, [kept] * 5)
        if isinstance(ai, OpenAI)
        else asyncio.gather(*(asked() for _ in range(5)), return_exceptions=True)
    )
    answers = [one for one in found if not isinstance(one, Exception)]
    errors = [one for one in found if isinstance(one, openai.InternalServerError)]
    assert len(answers) + len(errors) == 5
    assert {(error.status_code, error.type) for error in errors} == {(503, "server_busy")}
    assert [answer.output_text for answer in answers] == ["x" * 20] * len(answers)
    assert len(answers) >= 2
    patient = ai.with_options(max_retries=8)
    again = [lambda: patient.responses.create(**body("y" * 9, **ECHO))] * 3
    found = await together(patient, again)
    assert [answer.output_text for answer in found] == ["y" * 9] * 3


async def test_a_task_that_is_cancelled_gives_its_slot_back(narrow: Program) -> None:
    """Of the async client alone: a thread cannot be cancelled."""
    ai = openai.AsyncOpenAI(base_url=f"{narrow.url}{PREFIX}/v1", api_key=KEY, max_retries=0)
    async with ai:
        task = asyncio.create_task(ai.responses.create(**body("slow" * 100, **ECHO)))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await respond(ai, "ok", timeout=2.0, **ECHO)).output_text == "ok"


async def test_a_stream_with_a_name_goes_on_without_its_reader(
    connect: Connect, narrow: Program
) -> None:
    """And is kept when it ends."""
    ai = inside(connect, narrow)
    name = f"responses-{id(ai)}"
    sent = body("abcdefghij", stream=True, **ECHO, extra_headers={"X-Conversation-Id": name})
    async with opened(await settle(ai.responses.create(**sent))) as stream:
        heard = await first(stream, 5)
    query = {"conv_id": name, "from": 0}
    kept = await settle(ai.get("/stream", cast_to=httpx.Response, options={"params": query}))
    assert "event: response.completed" in kept.text
    answer = await settle(ai.responses.retrieve(heard[0].response.id))
    check(answer)
    assert (answer.output_text, answer.status) == ("abcdefghij", "completed")
