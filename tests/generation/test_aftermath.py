"""Reading ahead keeps out of everybody's way."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from mlxcel.core.answer import Choice
from mlxcel.core.cache import CacheUse
from mlxcel.core.events import FinishReason
from mlxcel.generation.aftermath import JOBS, Aftermath
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.prepare import Prepared, prepare
from mlxcel.link.messages import Warm
from tests.generation.speaking import THINKS, TURNS, asked, chat_model

pytestmark = pytest.mark.asyncio
THINKER = chat_model(TURNS, THINKS, caches=True)
PLAIN = chat_model(TURNS, caches=True)
ANSWER = Choice(reason=FinishReason.EOS, text="a", reasoning="b")


def prepared(session: str, model: ChatModel = THINKER) -> Prepared:
    request = asked(cache=CacheUse(session=session))
    return prepare(request, model=model, window=0, vocab_size=280, family="x")


async def warmed(model: ChatModel, *sessions: str) -> list[str]:
    """The sessions that were read ahead, when all asked before the first had its turn."""
    gate, found = Event(), list[Warm]()
    pool = ThreadPoolExecutor(1)
    pool.submit(gate.wait)
    aftermath = Aftermath(model, None, found.append, pool=pool)
    for session in sessions:
        aftermath.look_ahead(prepared(session, model), ANSWER, [1, 2], window=0)
    gate.set()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    aftermath.close()
    return [message.tag.session for message in found]


async def test_one_at_a_time_of_each_session() -> None:
    assert await warmed(THINKER, "a", "b", "a", "a") == ["key:a", "key:b"]


async def test_no_more_wait_than_are_worth_it() -> None:
    sessions = [str(number) for number in range(JOBS + 3)]
    assert len(await warmed(THINKER, *sessions)) == JOBS


async def test_next_time_a_session_has_its_turn_again() -> None:
    found: list[Warm] = []
    aftermath = Aftermath(THINKER, None, found.append)
    for count in (1, 2):
        aftermath.look_ahead(prepared("a"), ANSWER, [1, 2], window=0)
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        assert len(found) == count
    aftermath.close()


async def test_model_that_neither_thinks_nor_calls_is_not_read_ahead() -> None:
    assert await warmed(PLAIN, "a") == []
