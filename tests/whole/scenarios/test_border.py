"""What stands around an answer: models, keys, headers, errors, and connections that end early."""

import asyncio
import re
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Model

from tests.whole.program import Program
from tests.whole.scenarios.asking import (
    Ai,
    body,
    chat,
    check_answer,
    first,
    listed,
    opened,
    refused,
    settle,
    text_of,
    together,
)
from tests.whole.scenarios.conftest import KEY, PREFIX, Connect

pytestmark = [pytest.mark.whole, pytest.mark.asyncio]

ECHO = {"model": "echo"}
"""The only name that the narrow server answers to."""


def inside(connect: Connect, narrow: Program, **options: Any) -> Ai:
    """A client of the narrow server, with its key."""
    return connect(narrow, path=f"{PREFIX}/v1", **{"api_key": KEY} | options)


# Models


async def test_models_are_listed(connect: Connect, scripted: Program) -> None:
    page = await settle(connect(scripted).models.list())
    assert page.object == "list"
    [model] = page.data
    assert isinstance(model, Model)
    assert (model.id, model.object) == ("echo", "model")
    Model.model_validate(model.to_dict(), strict=True)


async def test_a_model_is_retrieved_by_its_name(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    model = await settle(ai.models.retrieve("echo"))
    assert (model.id, model.object) == ("echo", "model")
    error = await refused(openai.NotFoundError, ai.models.retrieve, model="owner/none")
    assert (error.code, error.param) == ("model_not_found", "model")
    assert "echo" in error.message


async def test_the_server_may_know_its_model_alone(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow)
    error = await refused(openai.NotFoundError, chat, ai=ai, model="gpt-none")
    assert (error.code, error.param) == ("model_not_found", "model")
    assert (await chat(ai, "ok", **ECHO)).model == "echo"


# Keys and addresses


async def test_a_wrong_key_is_an_authentication_error(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow, api_key="sk-wrong")
    for call, sent in ((ai.chat.completions.create, body(**ECHO)), (ai.models.list, {})):
        error = await refused(openai.AuthenticationError, call, **sent)
        assert (error.code, error.type) == ("invalid_api_key", "invalid_api_key")


async def test_a_key_may_come_in_a_header_of_its_own(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow, api_key="sk-wrong")
    headers = {"Authorization": openai.Omit(), "X-Api-Key": KEY}
    assert text_of(await chat(ai, "ok", **ECHO, extra_headers=headers)) == "ok"


async def test_a_prefix_is_part_of_the_address(connect: Connect, narrow: Program) -> None:
    assert [m.id for m in (await settle(inside(connect, narrow).models.list())).data] == ["echo"]
    outside = connect(narrow, api_key=KEY)
    await refused(openai.NotFoundError, outside.models.list)


async def test_headers_of_an_organization_are_no_trouble(
    connect: Connect, scripted: Program
) -> None:
    ai = connect(scripted, organization="org-1", project="proj-1", default_query={"v": "1"})
    assert text_of(await chat(ai, extra_headers={"X-Priority": "high"})) == "hello"


# Headers of an answer


async def test_headers_can_be_read(connect: Connect, scripted: Program) -> None:
    raw = await settle(connect(scripted).chat.completions.with_raw_response.create(**body()))
    answer = raw.parse()
    check_answer(answer)
    assert raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-request-id"] == answer._request_id
    assert raw.headers["x-cache-status"]


async def test_a_request_may_bring_its_id(connect: Connect, scripted: Program) -> None:
    ai, sent = connect(scripted), {"X-Request-Id": "mine-7"}
    assert (await chat(ai, extra_headers=sent))._request_id == "mine-7"
    error = await refused(openai.BadRequestError, chat, ai=ai, n=0, extra_headers=sent)
    assert error.request_id == "mine-7"


async def test_headers_of_a_stream_come_before_it(connect: Connect, tiny_server: Program) -> None:
    create = connect(tiny_server).chat.completions.with_streaming_response.create
    sent = body(stream=True, max_tokens=3)
    async with opened(create(**sent)) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-request-id"]
        assert response.headers["x-cache-status"]
        chunks = await listed(await settle(response.parse()))
    assert chunks[-1].choices[0].finish_reason == "length"


# Errors


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"temperature": "hot"}, "temperature", id="type"),
        pytest.param({"messages": []}, "messages", id="no-messages"),
        pytest.param(
            {"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role", id="role"
        ),
        pytest.param({"n": 9}, "n", id="nine-choices"),
        pytest.param({"max_tokens": -1}, "max_tokens", id="negative"),
        pytest.param({"top_logprobs": 2}, "top_logprobs", id="alternatives-of-nothing"),
        pytest.param({"logprobs": True, "top_logprobs": 21}, "top_logprobs", id="too-many"),
        pytest.param({"logit_bias": {"x": 1}}, "logit_bias", id="bias"),
        pytest.param({"stream_options": 1}, "stream_options", id="options"),
        pytest.param({"extra_body": {"top_k": -1}}, "top_k", id="extra"),
        pytest.param({"model": openai.omit}, "model", id="no-model"),
    ],
)
async def test_a_wrong_field_is_a_bad_request(
    connect: Connect, scripted: Program, fields: dict[str, Any], param: str
) -> None:
    ai = connect(scripted)
    for stream in (False, True):
        sent = body(stream=stream) | fields
        error = await refused(openai.BadRequestError, ai.chat.completions.create, **sent)
        assert (error.param, error.type, error.code) == (param, "invalid_request_error", None)
        assert error.request_id is not None
        assert param.split("[")[0] in error.message


async def test_a_prompt_beyond_the_window(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    for stream in (False, True):
        sent = body("x" * 5000, stream=stream)
        error = await refused(openai.BadRequestError, ai.chat.completions.create, **sent)
        assert error.code == "context_length_exceeded"


async def test_an_image_is_not_supported(connect: Connect, scripted: Program) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    sent = body(messages=[{"role": "user", "content": [part]}])
    ai = connect(scripted)
    error = await refused(openai.InternalServerError, ai.chat.completions.create, **sent)
    assert (error.status_code, error.type) == (501, "not_supported_error")
    assert error.param == "messages[0].content[0]"


async def test_what_is_too_large_is_a_413(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow)
    error = await refused(openai.APIStatusError, chat, ai=ai, text="x" * 30_000, **ECHO)
    assert (error.status_code, error.type) == (413, "invalid_request_error")
    assert text_of(await chat(ai, "ok", **ECHO)) == "ok"


async def test_what_is_no_json_is_a_415(connect: Connect, scripted: Program) -> None:
    ai, headers = connect(scripted), {"Content-Type": "text/plain"}
    error = await refused(openai.APIStatusError, chat, ai=ai, extra_headers=headers)
    assert (error.status_code, error.type) == (415, "invalid_request_error")


async def test_what_is_not_there_is_not_found(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    error = await refused(openai.NotFoundError, ai.fine_tuning.jobs.list)
    assert error.type == "not_found_error"


async def test_a_failure_before_the_first_token(connect: Connect, scripted: Program) -> None:
    ai = connect(scripted)
    error = await refused(openai.InternalServerError, ai.chat.completions.create, **body("break"))
    assert (error.status_code, error.type) == (500, "server_error")
    assert await heard_until_it_broke(ai, "break") == ""
    assert text_of(await chat(ai, "on")) == "on"


async def test_a_failure_in_mid_stream_is_raised(connect: Connect, scripted: Program) -> None:
    """After what was said by then; an end that looks like success would be a lie."""
    assert await heard_until_it_broke(connect(scripted), "break late") == "brea"


async def heard_until_it_broke(ai: Ai, text: str) -> str:
    stream = await settle(ai.chat.completions.create(**body(text), stream=True))
    heard: list[Any] = []

    async def hear() -> None:
        while True:
            heard.extend(await first(stream, 1))

    with pytest.raises(openai.APIError) as caught:
        await hear()
    assert not isinstance(caught.value, openai.APIStatusError)
    assert (caught.value.type, caught.value.code) == ("server_error", None)
    assert [c.choices[0].finish_reason for c in heard] == [None] * len(heard)
    return "".join(c.choices[0].delta.content or "" for c in heard)


# A server that is busy, clients that leave


async def test_a_full_queue_is_a_503_that_may_be_tried_again(
    connect: Connect, narrow: Program
) -> None:
    ai = inside(connect, narrow)

    def asked() -> Any:
        return ai.chat.completions.create(**body("x" * 20, **ECHO))

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
    assert [text_of(answer) for answer in answers] == ["x" * 20] * len(answers)
    assert len(answers) >= 2
    patient = ai.with_options(max_retries=8)
    found = await together(
        patient,
        [lambda: patient.chat.completions.create(**body("y" * 9, **ECHO)) for _ in range(4)],
    )
    assert [text_of(answer) for answer in found] == ["y" * 9] * 4


async def test_a_client_that_waits_no_longer(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow)
    with pytest.raises(openai.APITimeoutError):
        await settle(ai.chat.completions.create(**body("slow" * 100, **ECHO), timeout=0.3))
    assert text_of(await chat(ai, "ok", timeout=2.0, **ECHO)) == "ok", "its slot is free at once"


async def test_a_stream_that_is_left_gives_its_slot_back(connect: Connect, narrow: Program) -> None:
    ai = inside(connect, narrow)
    sent = body("long " * 200, stream=True, **ECHO)
    for _ in range(3):
        async with opened(await settle(ai.chat.completions.create(**sent))) as stream:
            await first(stream, 2)
    assert text_of(await chat(ai, "ok", timeout=2.0, **ECHO)) == "ok"


async def test_a_task_that_is_cancelled_gives_its_slot_back(narrow: Program) -> None:
    """Of the async client alone: a thread cannot be cancelled."""
    ai = openai.AsyncOpenAI(base_url=f"{narrow.url}{PREFIX}/v1", api_key=KEY, max_retries=0)
    async with ai:
        task = asyncio.create_task(ai.chat.completions.create(**body("slow" * 100, **ECHO)))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert text_of(await chat(ai, "ok", timeout=2.0, **ECHO)) == "ok"


async def test_a_stream_is_taken_up_where_it_was_left(connect: Connect, narrow: Program) -> None:
    """With a name it goes on without its reader, and is read again from its first byte."""
    ai = inside(connect, narrow)
    name = f"conversation-{id(ai)}"
    sent = body("abcdefghij", stream=True, **ECHO)
    async with opened(
        await settle(ai.chat.completions.create(**sent, extra_headers={"X-Conversation-Id": name}))
    ) as stream:
        heard = await first(stream, 3)
    query = {"conv_id": name, "from": 0}
    kept = await settle(ai.get("/stream", cast_to=httpx.Response, options={"params": query}))
    assert kept.status_code == 200
    assert kept.text.rstrip().endswith("data: [DONE]")
    assert kept.text.count(heard[0].id) == kept.text.count("data: {")
    assert "".join(re.findall(r'"content":"(\w+)"', kept.text)) == "abcdefghij"
    at = kept.text.index("data: [DONE]")
    rest = await settle(
        ai.get("/stream", cast_to=httpx.Response, options={"params": query | {"from": at}})
    )
    assert rest.text.strip() == "data: [DONE]"


async def test_what_the_sdk_has_no_method_for(connect: Connect, scripted: Program) -> None:
    """Routes of ours are a `post` away."""
    ai = connect(scripted)
    counted = await settle(
        ai.post("/chat/completions/input_tokens", cast_to=object, body=body("hello"))
    )
    whole = await chat(ai, "hello")
    assert whole.usage is not None
    assert counted == {"input_tokens": whole.usage.prompt_tokens}
