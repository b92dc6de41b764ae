"""Questions to a worker, and what becomes of them when it is slow, silent or gone."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mlxcel.core.cache import CacheTag
from mlxcel.core.errors import (
    AnswerTimeout,
    NotImplementedHere,
    RemoteError,
    Unavailable,
    WorkerDied,
)
from mlxcel.core.status import State, WorkerStats
from mlxcel.link.client import WorkerClient
from mlxcel.link.messages import Ask, Frame, Question, Reply, RowTokens, ToWorker, Warm
from mlxcel.link.supervisor import Supervisor
from tests.link.test_client import MODEL, connected

pytestmark = pytest.mark.asyncio
WARM = Warm(tokens=b"\1\0\0\0", tag=CacheTag())


def replied(*replies: Reply) -> Frame:
    return Frame([], WorkerStats(), list(replies))


async def asked(client: WorkerClient, sent: list[ToWorker], **how: Any) -> tuple[Any, str]:
    """A question on its way, and its id."""
    task = asyncio.ensure_future(client.ask(Question.CACHE_STATS, **how))
    before = len(sent)
    await asyncio.sleep(0)
    (message,) = sent[before:]
    assert isinstance(message, Ask)
    return task, message.id


async def test_each_question_gets_its_own_answer() -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    first, one = await asked(client, sent)
    second, two = await asked(client, sent, options={"a": [1]})
    assert sent[1] == Ask(id=two, question=Question.CACHE_STATS, options={"a": [1]})
    client.deliver(replied(Reply(id="nobodys"), Reply(id=two, value={"n": 2})))
    client.deliver(replied(Reply(id=one, value={"n": 1}), Reply(id=two, value={"n": 3})))
    assert (await first, await second) == ({"n": 1}, {"n": 2})


async def test_an_answer_that_is_an_error_is_raised() -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    task, name = await asked(client, sent)
    client.deliver(replied(Reply(id=name, error=NotImplementedHere("not here").info())))
    with pytest.raises(RemoteError, match="not here") as raised:
        await task
    assert raised.value.status == 501


async def test_a_worker_that_does_not_answer_in_time() -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    task, name = await asked(client, sent, timeout_s=0.01)
    with pytest.raises(AnswerTimeout, match=r"cache_stats within 0\.01 s") as raised:
        await task
    assert raised.value.status == 504
    client.deliver(replied(Reply(id=name)))  # late: nobody waits for it
    client.lost("told to end")


async def test_a_worker_that_is_lost_meanwhile() -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    first, name = await asked(client, sent)
    second, _ = await asked(client, sent)
    client.deliver(replied(Reply(id=name, value={"n": 1})))
    client.lost("killed by SIGKILL")
    assert await first == {"n": 1}
    with pytest.raises(WorkerDied, match="killed by SIGKILL"):
        await second


async def test_a_broken_connection_answers_nothing() -> None:
    client = WorkerClient("chat", max_queue_depth=1)
    client.connect(lambda message: False, MODEL)
    with pytest.raises(WorkerDied):
        await client.ask(Question.CACHE_STATS)


@pytest.mark.parametrize("state", [state for state in State if state is not State.OK])
async def test_a_worker_that_is_not_ready_is_neither_asked_nor_warmed(state: State) -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    client.report(state=state)
    with pytest.raises(Unavailable, match=f"the chat worker .*{state.value[:4]}"):
        await client.ask(Question.CACHE_RESET)
    client.warm(WARM)
    assert sent == []


async def test_whoever_gives_up_leaves_nothing_behind() -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    task, name = await asked(client, sent)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    client.deliver(replied(Reply(id=name, value={"n": 1})))
    client.lost("told to end")


async def test_what_to_read_ahead_is_handed_over() -> None:
    sent: list[ToWorker] = []
    connected(sent).warm(WARM)
    WorkerClient("chat", max_queue_depth=1).warm(WARM)
    assert sent == [WARM]


@pytest.mark.parametrize("placement", ["process", "thread", "inline"])
async def test_a_real_worker_answers(running: Callable[..., Any], placement: str) -> None:
    async with running(placement) as supervisor:
        client = supervisor.client
        stats = await client.ask(Question.CACHE_STATS, timeout_s=10)
        assert (stats["enabled"], stats["hits"]) == (False, 0)
        client.warm(WARM)  # it has nothing to warm, and does not mind
        freed = await client.ask(Question.CACHE_RESET, timeout_s=10)
        assert freed == {"cleared": True, "freed_bytes": 0, "freed_entries": 0}
        with pytest.raises(RemoteError, match="conversation_save") as raised:
            await client.ask(Question.CONVERSATION_SAVE, {"session": "a"}, timeout_s=10)
        assert raised.value.status == 501


async def test_a_worker_killed_in_mid_question(
    running: Callable[..., Any], submit: Callable[..., Any]
) -> None:
    async with running(workers={"tick_timeout_s": 0.5}) as supervisor:
        await _hang(supervisor, submit)
        with pytest.raises(WorkerDied, match="tick"):
            await supervisor.client.ask(Question.CACHE_STATS, timeout_s=20)


async def _hang(supervisor: Supervisor, submit: Callable[..., Any]) -> None:
    """From its second token on the worker answers nobody."""
    channel = supervisor.client.open("a")
    supervisor.client.send(submit("a", "hang here"))
    told = 0
    while told < 2:
        event = await channel.next()
        told += len(event.ids) if isinstance(event, RowTokens) else 0
    await asyncio.sleep(0.1)  # what comes before the third is answered
