"""The official client, sync and async alike: a scenario is written once, and awaits what either
hands out.

Knows the SDK's own types, and which keys of ours stand beside OpenAI's.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import (
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    DefaultHttpxClient,
    OpenAI,
    Stream,
)
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

Ai = OpenAI | AsyncOpenAI
KINDS: dict[str, tuple[Any, Any]] = {
    "sync": (OpenAI, DefaultHttpxClient),
    "async": (AsyncOpenAI, DefaultAsyncHttpxClient),
}
"""A client, and what it sends with."""

ENVELOPE = {"id", "object", "created", "model", "system_fingerprint", "choices"}
OURS = {"timings", "reasoning_only"}
MESSAGE = {"role", "content"}
SPOKEN = {"tool_calls", "reasoning_content", "reasoning"}
"""Keys of a message that stand there when there is something to say."""


def body(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "any", "messages": [{"role": "user", "content": text}]} | fields


async def settle(value: Any) -> Any:
    """What a call of either client comes to."""
    return await value if inspect.isawaitable(value) else value


async def chat(ai: Ai, text: str = "hello", **fields: Any) -> ChatCompletion:
    """An answer in one piece, whose shape is right."""
    answer = await settle(ai.chat.completions.create(**body(text, **fields)))
    assert isinstance(answer, ChatCompletion)
    check_answer(answer)
    return answer


async def chunks(ai: Ai, text: str = "hello", **fields: Any) -> list[ChatCompletionChunk]:
    """A stream to its end; the shape of each chunk, and their order, are right."""
    stream = await settle(ai.chat.completions.create(**body(text, **fields), stream=True))
    found = await listed(stream)
    check_chunks(found)
    return found


async def complete(ai: Ai, prompt: Any, **fields: Any) -> Completion:
    answer = await settle(ai.completions.create(model="any", prompt=prompt, **fields))
    assert isinstance(answer, Completion)
    sent = answer.to_dict()
    assert set(sent) - OURS == ENVELOPE | {"usage"}
    assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
    for choice in answer.choices:
        assert choice.model_fields_set == {"index", "text", "finish_reason", "logprobs"}
        assert choice.finish_reason in ("stop", "length")
    assert answer.id.startswith("cmpl-")
    return answer


async def listed(stream: Stream[Any] | AsyncStream[Any]) -> list[Any]:
    if isinstance(stream, AsyncStream):
        return [item async for item in stream]
    return list(stream)


async def first(stream: Stream[Any] | AsyncStream[Any], count: int) -> list[Any]:
    """The next of a stream that is not read to its end."""
    if isinstance(stream, AsyncStream):
        return [await anext(stream) for _ in range(count)]
    return [next(stream) for _ in range(count)]


@asynccontextmanager
async def opened(manager: Any) -> AsyncIterator[Any]:
    """`with` or `async with`, whichever the helper of that client wants."""
    if hasattr(manager, "__aenter__"):
        async with manager as inside:
            yield inside
    else:
        with manager as inside:
            yield inside


async def events(ai: Ai, text: str, **fields: Any) -> tuple[list[Any], Any]:
    """What the `.stream()` helper tells, and the answer it puts together."""
    async with opened(ai.chat.completions.stream(**body(text, **fields))) as helper:
        is_async = isinstance(ai, AsyncOpenAI)
        told = [event async for event in helper] if is_async else list(helper)
        return told, await settle(helper.get_final_completion())


async def refused(
    kind: type[openai.APIStatusError], call: Callable[..., Any], **fields: Any
) -> openai.APIStatusError:
    """What a call raises: just this class, made of an error object with all its keys."""
    with pytest.raises(kind) as caught:
        await settle(call(**fields))
    error = caught.value
    assert type(error) is kind
    assert isinstance(error.body, dict)
    assert set(error.body) == {"message", "type", "param", "code"}
    return error


async def together(ai: Ai, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """All at once: in threads for the sync client, as tasks for the other."""
    if isinstance(ai, OpenAI):
        return await asyncio.gather(*(asyncio.to_thread(call) for call in calls))
    return await asyncio.gather(*(settle(call()) for call in calls))


def check_answer(answer: ChatCompletion) -> None:
    """The values on the wire have the SDK's types without any coercion, and no key is missing."""
    sent = answer.to_dict()
    ChatCompletion.model_validate(sent, strict=True)
    assert set(sent) - OURS == ENVELOPE | {"usage"}
    assert answer.id.startswith("chatcmpl-")
    assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
    for choice in answer.choices:
        assert set(choice.to_dict()) - OURS == {"index", "message", "finish_reason", "logprobs"}
        assert set(choice.message.to_dict()) - SPOKEN == MESSAGE
        # An answer of calls that the limit cut has those that were whole.
        if choice.finish_reason != "length":
            calls = choice.message.tool_calls
            assert (choice.finish_reason == "tool_calls") == (calls is not None)
    assert answer.usage is not None
    used = answer.usage
    assert used.total_tokens == used.prompt_tokens + used.completion_tokens


def check_chunks(found: Sequence[ChatCompletionChunk]) -> None:
    """One id and time; each choice opens with its role, and ends with its reason."""
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in found}) == 1
    ended: dict[int, bool] = {}
    for chunk in found:
        sent = chunk.to_dict()
        ChatCompletionChunk.model_validate(sent, strict=True)
        assert set(sent) - OURS - {"usage"} == ENVELOPE
        assert len(chunk.choices) == (0 if chunk.usage else 1)
        for choice in chunk.choices:
            assert set(choice.to_dict()) - OURS == {"index", "delta", "finish_reason", "logprobs"}
            if choice.index not in ended:
                assert choice.delta.to_dict() == {"role": "assistant"}
            assert not ended.get(choice.index), "nothing comes after the end"
            ended[choice.index] = choice.finish_reason is not None
            assert choice.finish_reason is None or choice.delta.to_dict() == {}
    assert ended
    assert all(ended.values())


def text_of(answer: ChatCompletion, choice: int = 0) -> str:
    content = answer.choices[choice].message.content
    assert isinstance(content, str)
    return content


def joined(found: Sequence[ChatCompletionChunk], choice: int = 0) -> str:
    mine = (each for chunk in found for each in chunk.choices if each.index == choice)
    return "".join(each.delta.content or "" for each in mine)


def reason_of(found: Sequence[ChatCompletionChunk], choice: int = 0) -> str | None:
    mine = (each for chunk in found for each in chunk.choices if each.index == choice)
    return [each.finish_reason for each in mine][-1]
