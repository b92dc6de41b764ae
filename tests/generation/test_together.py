"""Several requests answered as one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import ContextLengthExceeded, QueueFull
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptScored,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.core.request import GenerationRequest, TextPrompt
from mlxcel.core.status import State, WorkerStats, WorkerStatus
from mlxcel.generation.collect import collect
from mlxcel.generation.together import generate_all
from tests.generation.scripted import ERROR, request

pytestmark = pytest.mark.asyncio


class Source:
    """Says each prompt back, one character an event."""

    window = 8

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.running = 0
        self.most = 0
        self.closed: list[str] = []

    def status(self) -> WorkerStatus:
        return WorkerStatus(name="chat", state=State.OK, stats=WorkerStats(slots=self.slots))

    async def count(self, asked: GenerationRequest) -> int:
        return len(text_of(asked))

    async def generate(self, asked: GenerationRequest) -> AsyncGenerator[Event, None]:
        text = text_of(asked)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if text == "full":
                raise QueueFull
            yield Accepted(len(text))
            yield PromptScored(())
            for char in text:
                await asyncio.sleep(0)
                if char == "!":
                    yield Failed(ERROR)
                    return
                for choice in range(asked.choices):
                    yield TextDelta(char, choice)
            for choice in range(asked.choices):
                yield ChoiceFinished(FinishReason.EOS, choice)
            usage = Usage(prompt_tokens=len(text), completion_tokens=len(text), cached_tokens=1)
            yield Finished(usage, Timings(queued_ms=1, prompt_ms=len(text), decode_ms=2))
        finally:
            self.running -= 1
            self.closed.append(asked.id)


def text_of(asked: GenerationRequest) -> str:
    assert isinstance(asked.prompt, TextPrompt)
    return asked.prompt.text


def asked(*texts: str, choices: int = 1) -> list[GenerationRequest]:
    return [
        replace(request(), id=f"r{n}", prompt=TextPrompt(text=text), choices=choices)
        for n, text in enumerate(texts)
    ]


async def events_of(source: Any, requests: list[GenerationRequest]) -> list[Event]:
    return [event async for event in generate_all(source, requests)]


async def test_choices_are_counted_through() -> None:
    source = Source()
    requests = asked("ab", "cde", "f", choices=2)
    answer = await collect(generate_all(source, requests))
    assert [choice.text for choice in answer.choices] == ["ab", "ab", "cde", "cde", "f", "f"]
    assert answer.usage == Usage(prompt_tokens=6, completion_tokens=6, cached_tokens=3)
    assert answer.timings.prompt_ms == 3


async def test_it_begins_once_and_ends_once() -> None:
    events = await events_of(Source(), asked("ab", "cd", "e"))
    assert events[0] == Accepted(5)
    assert sum(isinstance(event, Accepted) for event in events) == 1
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1


@pytest.mark.parametrize(("slots", "choices", "most"), [(2, 1, 2), (4, 2, 2), (1, 2, 1), (8, 1, 5)])
async def test_no_more_run_at_once_than_there_are_slots(
    slots: int, choices: int, most: int
) -> None:
    source = Source(slots)
    await events_of(source, asked("ab", "cd", "ef", "gh", "ij", choices=choices))
    assert source.most == most


async def test_a_prompt_too_long_refuses_all_before_anything_runs() -> None:
    source = Source(1)
    with pytest.raises(ContextLengthExceeded):
        await events_of(source, asked("ab", "123456789"))
    assert source.most == 0


async def test_the_first_failure_ends_all() -> None:
    source = Source(3)
    events = await events_of(source, asked("a!", "abcdefg", "abcdefg"))
    assert events[-1] == Failed(ERROR)
    assert source.running == 0
    with pytest.raises(QueueFull):
        await events_of(source, asked("full", "abcdefg"))
    assert source.running == 0


async def test_whoever_leaves_ends_all() -> None:
    source = Source(2)
    async with aclosing(generate_all(source, asked("abcdef", "abcdef"))) as events:  # type: ignore[arg-type]
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert source.running == 0
    assert sorted(source.closed) == ["r0", "r1"]
