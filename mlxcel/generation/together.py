"""Several requests answered as one: prompts that came in one list.

Their choices are counted through: prompt i of requests with n choices has i * n and on.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from msgspec.structs import replace as replace_struct

from mlxcel.core.errors import ContextLengthExceeded
from mlxcel.core.events import (
    Accepted,
    Event,
    Failed,
    Finished,
    PromptProgress,
    Started,
    Timings,
    Usage,
)
from mlxcel.core.ports import Generator
from mlxcel.core.request import GenerationRequest

QUEUED = 64
"""Events that wait for a slow reader; then the requests wait."""


def generate_all(
    generator: Generator, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[Event, None]:
    """As `Generator.generate`; with several requests as many at once as there are slots for.

    The first failure ends them all. What can be told of the later prompts before they have a place
    (that one is too long) refuses the whole before the first event.
    """
    if len(requests) == 1:
        return generator.generate(requests[0])
    return _together(generator, requests)


async def _together(
    generator: Generator, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[Event, None]:
    prompt_tokens = await _lengths(generator, requests)
    async with aclosing(_Together(generator, requests, prompt_tokens).events()) as merged:
        async for event in merged:
            yield event


async def _lengths(generator: Generator, requests: Sequence[GenerationRequest]) -> int:
    """Of all prompts together. Raises what refuses one of them."""
    window, total = generator.window, 0
    for request in requests:
        length = await generator.count(request)
        if 0 < window <= length:
            raise ContextLengthExceeded(length, window, param="prompt")
        total += length
    return total


class _Together:
    def __init__(
        self, generator: Generator, requests: Sequence[GenerationRequest], prompt_tokens: int
    ) -> None:
        self._generator = generator
        self._requests = requests
        self._prompt_tokens = prompt_tokens
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue(QUEUED)
        self._ends: list[Finished] = []

    async def events(self) -> AsyncGenerator[Event, None]:
        width = max(1, self._generator.status().stats.slots // self._requests[0].choices)
        places = asyncio.Semaphore(width)
        tasks = [
            asyncio.create_task(self._run(request, place, places))
            for place, request in enumerate(self._requests)
        ]
        try:
            has_begun = False
            while len(self._ends) < len(self._requests):
                told = await self._events.get()
                if isinstance(told, Exception):
                    raise told
                if isinstance(told, Accepted):
                    if has_begun:
                        continue
                    has_begun = True
                    told = Accepted(self._prompt_tokens, told.cache)
                if isinstance(told, Finished):
                    self._ends.append(told)
                    continue
                yield told
                if isinstance(told, Failed):
                    return
            yield self._finished()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, request: GenerationRequest, place: int, places: asyncio.Semaphore) -> None:
        first = place * request.choices
        try:
            async with places, aclosing(self._generator.generate(request)) as events:
                async for event in events:
                    await self._events.put(_shifted(event, first))
        except Exception as why:
            await self._events.put(why)

    def _finished(self) -> Finished:
        usages = [end.usage for end in self._ends]
        cached = [usage.cached_tokens for usage in usages if usage.cached_tokens is not None]
        usage = Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in usages),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            cached_tokens=sum(cached) if cached else None,
        )
        return Finished(usage, _overlaid([end.timings for end in self._ends]))


def _shifted(event: Event, first: int) -> Event:
    if isinstance(event, Accepted | PromptProgress | Started | Finished | Failed):
        return event
    return replace(event, choice=event.choice + first)


def _overlaid(timings: Sequence[Timings]) -> Timings:
    """They ran beside each other: the longest of each. What the cache was good for is told of the
    first."""
    return replace_struct(
        timings[0],
        queued_ms=max(one.queued_ms for one in timings),
        prompt_ms=max(one.prompt_ms for one in timings),
        decode_ms=max(one.decode_ms for one in timings),
        total_ms=max(one.total_ms for one in timings),
    )
