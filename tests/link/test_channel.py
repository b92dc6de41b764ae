import asyncio
from typing import Any

import pytest

from mlxcel.core.errors import QueueFull
from mlxcel.core.events import FinishReason, Timings, Usage
from mlxcel.link.channel import Channel
from mlxcel.link.messages import (
    RowAccepted,
    RowEnded,
    RowEvent,
    RowFailed,
    RowFinished,
    RowTokens,
    TokenScores,
)

FINISHED = RowFinished(
    "a",
    Usage(prompt_tokens=1, completion_tokens=1),
    Timings(queued_ms=0, prompt_ms=0, decode_ms=0),
)


def tokens(ids: list[int], choice: int = 0, **facts: Any) -> RowTokens:
    return RowTokens(id="a", ids=ids, choice=choice, **facts)


FAILED = RowFailed("a", QueueFull().info())


def drained(channel: Channel) -> list[RowEvent]:
    async def drain() -> list[RowEvent]:
        return [event async for event in channel]

    return asyncio.run(asyncio.wait_for(drain(), 10))


def test_tokens_that_wait_are_merged_into_one_event() -> None:
    channel = Channel()
    channel.put(RowAccepted("a"))
    for token in range(10_000):
        channel.put(tokens([token]))
    assert len(channel._events) == 2
    channel.put(FINISHED)
    assert drained(channel) == [RowAccepted("a"), tokens(list(range(10_000))), FINISHED]


def test_tokens_of_each_choice_are_merged_up_to_its_end() -> None:
    channel = Channel()
    ended = RowEnded(id="a", reason=FinishReason.EOS, choice=0)
    for event in (tokens([1]), tokens([2], 1), tokens([3]), ended, tokens([4], 1), FINISHED):
        channel.put(event)
    assert drained(channel) == [tokens([1, 3]), tokens([2], 1), ended, tokens([4], 1), FINISHED]


def test_forced_tokens_stay_apart_and_scores_stay_with_their_tokens() -> None:
    channel = Channel()
    scores = [TokenScores(-float(i), []) for i in range(3)]
    channel.put(tokens([1], scores=[scores[0]]))
    channel.put(tokens([2], scores=[scores[1]]))
    channel.put(tokens([3], scores=[scores[2]], is_forced=True))
    channel.put(FINISHED)
    first, forced, _ = drained(channel)
    assert first == tokens([1, 2], scores=scores[:2])
    assert forced == tokens([3], scores=scores[2:], is_forced=True)


def test_merging_leaves_the_senders_list_alone() -> None:
    channel, ids = Channel(), [1]
    channel.put(tokens(ids))
    channel.put(tokens([2]))
    assert ids == [1]


@pytest.mark.parametrize("last", [FINISHED, FAILED], ids=["finished", "failed"])
def test_nothing_comes_after_the_end(last: RowEvent) -> None:
    channel = Channel()
    channel.put(last)
    channel.put(tokens([1]))
    assert drained(channel) == [last]


def test_close_ends_a_reader_that_waits() -> None:
    async def scenario() -> list[RowEvent]:
        channel = Channel()
        asyncio.get_running_loop().call_later(0.01, channel.close)
        return [event async for event in channel]

    assert asyncio.run(asyncio.wait_for(scenario(), 10)) == []


def test_a_token_read_is_not_changed_by_a_later_one() -> None:
    async def scenario() -> tuple[RowEvent, RowEvent]:
        channel = Channel()
        channel.put(tokens([1]))
        first = await channel.next()
        channel.put(tokens([2]))
        return first, await channel.next()

    assert asyncio.run(scenario()) == (tokens([1]), tokens([2]))


def test_a_channel_is_ready_when_there_is_something_to_read_or_an_end() -> None:
    channel = Channel()
    assert not channel.is_ready
    channel.put(tokens([1]))
    assert channel.is_ready
    asyncio.run(channel.next())
    assert not channel.is_ready
    channel.close()
    assert channel.is_ready
