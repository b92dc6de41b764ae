"""Anthropic's official client, sync and async alike, as in `asking`.

Knows the SDK's own types; a stream comes to the same message as an answer in one piece.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anthropic
import pytest
import pytest_asyncio
from anthropic import Anthropic, AsyncAnthropic, DefaultAsyncHttpxClient, DefaultHttpxClient
from anthropic.types import Message

from tests.whole.program import Program
from tests.whole.scenarios.asking import opened, settle

Claude = Anthropic | AsyncAnthropic
KINDS: dict[str, tuple[Any, Any]] = {
    "sync": (Anthropic, DefaultHttpxClient),
    "async": (AsyncAnthropic, DefaultAsyncHttpxClient),
}
ENVELOPE = {
    *("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"),
}
USAGE = {
    *("input_tokens", "output_tokens"),
    *("cache_creation_input_tokens", "cache_read_input_tokens"),
}
UNNAMED = ("temperature", "top_p", "top_k")
"""Fields that this version of the client has no parameter for."""
REASONS = ("end_turn", "max_tokens", "stop_sequence", "tool_use")


class Reach(Protocol):
    def __call__(self, program: Program, *, path: str = ..., **options: Any) -> Claude: ...


@pytest_asyncio.fixture(params=KINDS)
async def reach(request: pytest.FixtureRequest) -> AsyncIterator[Reach]:
    """Makes a client of a server. It does not retry: what fails is seen."""
    made: list[Claude] = []

    def reached(program: Program, *, path: str = "", **options: Any) -> Claude:
        make, transport = KINDS[request.param]
        given = {"api_key": "none", "max_retries": 0, "timeout": 60} | options
        made.append(make(base_url=program.url + path, http_client=transport(verify=False), **given))
        return made[-1]

    yield reached
    for ai in made:
        await settle(ai.close())


def body(text: str = "hello", **fields: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": text}]
    sent = {"model": "any", "max_tokens": 512, "messages": said} | fields
    unnamed = {name: sent.pop(name) for name in UNNAMED if name in sent}
    return sent | ({"extra_body": unnamed} if unnamed else {})


async def message(ai: Claude, text: str = "hello", **fields: Any) -> Message:
    """An answer in one piece, whose shape is right."""
    answer = await settle(ai.messages.create(**body(text, **fields)))
    assert isinstance(answer, Message)
    check(answer)
    return answer


async def raw_events(ai: Claude, text: str = "hello", **fields: Any) -> list[Any]:
    """Of `create(stream=True)`, to the end."""
    stream = await settle(ai.messages.create(**body(text, **fields), stream=True))
    return await listed(ai, stream)


async def listed(ai: Claude, stream: Any) -> list[Any]:
    return [item async for item in stream] if isinstance(ai, AsyncAnthropic) else list(stream)


@asynccontextmanager
async def streaming(ai: Claude, text: str = "hello", **fields: Any) -> AsyncIterator[Any]:
    """The `.stream()` helper, open."""
    async with opened(ai.messages.stream(**body(text, **fields))) as helper:
        yield helper


async def streamed(ai: Claude, text: str = "hello", **fields: Any) -> Message:
    """What the `.stream()` helper puts together."""
    async with streaming(ai, text, **fields) as helper:
        final = await settle(helper.get_final_message())
    assert isinstance(final, Message)
    check(final)
    return final


async def both(ai: Claude, text: str = "hello", **fields: Any) -> Message:
    """The same answer in one piece and as a stream."""
    whole, pieces = await message(ai, text, **fields), await streamed(ai, text, **fields)
    assert _plain(whole) == _plain(pieces)
    return whole


async def refused(kind: type[anthropic.APIStatusError], call: Any, **fields: Any) -> Any:
    """What a call raises: just this class, made of Anthropic's envelope."""
    with pytest.raises(anthropic.APIStatusError) as caught:
        await settle(call(**fields))
    error = caught.value
    assert type(error) is kind, error
    return error


def check(answer: Message) -> None:
    """No key is missing, and no other is there; no value needs coercion."""
    sent = as_sent(answer)
    Message.model_validate(sent, strict=True)
    assert set(sent) == ENVELOPE, sent
    assert set(sent["usage"]) == USAGE
    assert answer.id.startswith("msg_")
    assert len(answer.id) == len("msg_") + 16
    assert answer.stop_reason in REASONS
    assert (answer.stop_reason == "stop_sequence") == (answer.stop_sequence is not None)


def as_sent(answer: Message) -> dict[str, Any]:
    """Without what the helper for streams puts in itself."""
    sent: dict[str, Any] = answer.to_dict()
    if sent.get("stop_details", "") is None:
        del sent["stop_details"]
    for block in sent["content"]:
        block.pop("parsed_output", None)
    return sent


def text_of(answer: Message) -> str:
    return "".join(block.text for block in answer.content if block.type == "text")


def _plain(answer: Message) -> dict[str, Any]:
    """Without ids, and without what the prompt cache had."""
    sent = as_sent(answer)
    del sent["id"]
    used = sent.pop("usage")
    for block in sent["content"]:
        if block["type"] == "tool_use":
            del block["id"]
    read = used["input_tokens"] + used["cache_read_input_tokens"]
    return sent | {"read": read, "said": used["output_tokens"]}


def read_tokens(answer: Message) -> int:
    """All of the prompt, however it was read."""
    used = answer.usage
    assert used.cache_read_input_tokens is not None
    assert used.cache_creation_input_tokens == 0
    return used.input_tokens + used.cache_read_input_tokens
