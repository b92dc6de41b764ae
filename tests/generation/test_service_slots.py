"""What the service tells the slots of its requests."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from mlxcel.core.errors import RemoteError, Unavailable
from mlxcel.core.events import Accepted, Finished, TextDelta
from mlxcel.generation.collect import collect
from mlxcel.generation.service import GenerationService
from mlxcel.link.messages import Question, RowAccepted, RowEvent, RowFailed, RowTokens
from tests.generation.scripted import (
    BEGAN,
    CACHE,
    ERROR,
    SILENCE,
    STARTED,
    ScriptedChat,
    request,
    rows,
    service,
)

pytestmark = pytest.mark.asyncio


def slotted(chat: ScriptedChat, folder: Path) -> GenerationService:
    return service(chat, cache=CACHE | {"slot_save_path": str(folder)})


async def test_a_slot_keeps_what_was_asked_and_answered(tmp_path: Path) -> None:
    chat = ScriptedChat(rows(b"yes"))
    text = slotted(chat, tmp_path)
    await collect(text.generate(request()))
    saved = await text.slots.save(0, "a.bin")
    assert saved.tokens == len(chat.submitted[0].tokens) // 4 + len(b"yes")
    await text.slots.restore(0, "a.bin")
    assert [warm.tag for warm in chat.warmed] == [chat.submitted[0].cache]
    text.close()


async def test_a_slot_is_busy_from_the_first_token_on_and_free_when_the_client_left(
    tmp_path: Path,
) -> None:
    chat = ScriptedChat([RowAccepted("r1"), STARTED, RowTokens(id="r1", ids=[97]), SILENCE])
    text = slotted(chat, tmp_path)
    events = text.generate(request())
    assert isinstance(await anext(events), Accepted)
    assert text.slots.erase(0) == 0
    assert [await anext(events), await anext(events)] == [BEGAN, TextDelta("a")]
    with pytest.raises(Unavailable, match="processing"):
        text.slots.erase(0)
    await events.aclose()
    assert text.slots.erase(0) > 1
    text.close()


async def test_a_slow_reader_of_the_end_keeps_no_slot(tmp_path: Path) -> None:
    text = slotted(ScriptedChat(rows(b"yes")), tmp_path)
    async for event in text.generate(request()):
        if isinstance(event, Finished):
            assert text.slots.erase(0) > 3
            break
    else:
        pytest.fail("no finish")
    text.close()


async def test_a_request_that_fails_or_is_refused_keeps_no_slot(tmp_path: Path) -> None:
    begun: list[RowEvent] = [
        RowAccepted("r1"),
        STARTED,
        RowTokens(id="r1", ids=[97]),
        RowFailed("r1", ERROR),
    ]
    refused: list[RowEvent] = [RowFailed("r1", ERROR)]
    for played in (begun, refused):
        text = slotted(ScriptedChat(played), tmp_path)
        with pytest.raises(RemoteError):
            await collect(text.generate(request()))
        text.slots.erase(0)
        text.close()


async def test_of_several_answers_the_first_is_kept(tmp_path: Path) -> None:
    said = [RowTokens(id="r1", ids=list(b"abc!"[choice:]), choice=choice) for choice in range(3)]
    chat = ScriptedChat([RowAccepted("r1"), STARTED, *said, SILENCE])
    text = slotted(chat, tmp_path)
    asked = replace(request(stop=("!",)), choices=3)
    async with asyncio.timeout(5):
        await collect(text.generate(asked))
    assert text.slots.erase(0) == len(chat.submitted[0].tokens) // 4 + 4
    text.close()


async def test_the_cache_is_the_workers(tmp_path: Path) -> None:
    chat = ScriptedChat()
    text = slotted(chat, tmp_path)
    assert await text.cache.stats() == {"asked": Question.CACHE_STATS}
    assert await text.cache.reset() == {"asked": Question.CACHE_RESET}
    text.close()
