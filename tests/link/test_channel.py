import asyncio

import pytest

from mlxcel.core.errors import QueueFull
from mlxcel.core.events import FinishReason, Timings, Usage
from mlxcel.link.channel import Channel
from mlxcel.link.messages import RowAccepted, RowEvent, RowFailed, RowFinished, RowTokens

FINISHED = RowFinished(
    "a",
    FinishReason.EOS,
    Usage(prompt_tokens=1, completion_tokens=1),
    Timings(queued_ms=0, prompt_ms=0, decode_ms=0),
)
FAILED = RowFailed("a", QueueFull().info())


def drained(channel: Channel) -> list[RowEvent]:
    async def drain() -> list[RowEvent]:
        return [event async for event in channel]

    return asyncio.run(asyncio.wait_for(drain(), 10))


def test_tokens_that_wait_are_merged_into_one_event() -> None:
    channel = Channel()
    channel.put(RowAccepted("a"))
    for token in range(10_000):
        channel.put(RowTokens("a", [token]))
    assert len(channel._events) == 2
    channel.put(FINISHED)
    assert drained(channel) == [RowAccepted("a"), RowTokens("a", list(range(10_000))), FINISHED]


def test_merging_leaves_the_senders_list_alone() -> None:
    channel, ids = Channel(), [1]
    channel.put(RowTokens("a", ids))
    channel.put(RowTokens("a", [2]))
    assert ids == [1]


@pytest.mark.parametrize("last", [FINISHED, FAILED], ids=["finished", "failed"])
def test_nothing_comes_after_the_end(last: RowEvent) -> None:
    channel = Channel()
    channel.put(last)
    channel.put(RowTokens("a", [1]))
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
        channel.put(RowTokens("a", [1]))
        first = await channel.next()
        channel.put(RowTokens("a", [2]))
        return first, await channel.next()

    assert asyncio.run(scenario()) == (RowTokens("a", [1]), RowTokens("a", [2]))
