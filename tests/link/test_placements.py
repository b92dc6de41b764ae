"""What holds in every placement, shown with the real echo worker."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mlxcel.core.errors import QueueFull, StartupError
from mlxcel.core.events import FinishReason
from mlxcel.core.status import State
from mlxcel.link.channel import Channel
from mlxcel.link.messages import (
    RowAccepted,
    RowEnded,
    RowEvent,
    RowFailed,
    RowFinished,
    RowTokens,
    Submit,
)
from mlxcel.link.supervisor import Supervisor
from tests.link.asking import ask

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.parametrize("placement", ["process", "thread", "inline"]),
]
PATIENCE_S = 20


async def events_of(channel: Channel) -> list[RowEvent]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in channel]


async def reach(supervisor: Supervisor, state: State) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while supervisor.client.status().state is not state:
            await asyncio.sleep(0.01)


def said(events: list[RowEvent]) -> str:
    tokens = (event.ids for event in events if isinstance(event, RowTokens))
    return bytes(token for ids in tokens for token in ids).decode()


async def test_a_request_goes_round(
    placement: str, running: Any, submit: Callable[..., Submit]
) -> None:
    async with running(placement) as supervisor:
        events = await events_of(ask(supervisor.client, submit("a", "hello you")))
        status = supervisor.client.status()
    assert events[0] == RowAccepted("a")
    assert said(events) == "hi there"
    assert isinstance(events[-1], RowFinished)
    assert events[-2] == RowEnded(id="a", reason=FinishReason.EOS)
    assert (status.state, status.stats.completed, status.stats.active) == (State.OK, 1, 0)
    assert supervisor.client.status().state is State.STOPPED


async def test_rows_run_side_by_side_and_keep_to_themselves(
    placement: str, running: Any, submit: Callable[..., Submit]
) -> None:
    async with running(placement, delay_ms=2) as supervisor:
        texts = ["first text", "the second", "a third one"]
        channels = [ask(supervisor.client, submit(text, text)) for text in texts]
        answers = await asyncio.gather(*(events_of(channel) for channel in channels))
    assert [said(events) for events in answers] == texts


async def test_a_crash_fails_what_was_in_flight_and_the_next_request_works(
    placement: str, running: Any, submit: Callable[..., Submit]
) -> None:
    async with running(placement, delay_ms=5) as supervisor:
        client = supervisor.client
        other = ask(client, submit("b", "hello " * 50))
        events = await events_of(ask(client, submit("a", "crash now")))
        assert client.status().state is State.RESTARTING
        assert isinstance(events[-1], RowFailed)
        assert events[-1].error.code == "worker_died"
        assert said(events) == "cr"
        assert isinstance((await events_of(other))[-1], RowFailed)
        await reach(supervisor, State.OK)
        assert said(await events_of(ask(client, submit("c", "hello")))) == "hi there"
        assert client.status().restarts == 1


async def test_a_failed_row_leaves_the_others_alone(
    placement: str, running: Any, submit: Callable[..., Submit]
) -> None:
    async with running(placement) as supervisor:
        broken = ask(supervisor.client, submit("a", "error now"))
        whole = ask(supervisor.client, submit("b", "hello"))
        events = await events_of(broken)
        assert said(await events_of(whole)) == "hi there"
        assert supervisor.client.status().restarts == 0
    assert isinstance(events[-1], RowFailed)
    assert events[-1].error.code == "generation_failed"


async def test_a_cancelled_row_gives_its_slot_back(
    placement: str, running: Any, submit: Callable[..., Submit]
) -> None:
    one = {"parallel": 1, "max_batch_size": None, "no_batch": False}
    async with running(placement, delay_ms=20, scheduler=one) as supervisor:
        client = supervisor.client
        channel = ask(client, submit("a", "x" * 1000))
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(await channel.next(), RowTokens):
                pass
        ask(client, submit("b", "y" * 1000))
        with pytest.raises(QueueFull):
            ask(client, submit("c", "z"))
        client.cancel("a")
        client.cancel("b")
        assert said(await events_of(ask(client, submit("d", "hello")))) == "hi there"
        assert client.status().stats.active == 0


async def test_a_worker_that_cannot_start_says_why(placement: str, supervisor_of: Any) -> None:
    supervisor = supervisor_of(placement, script=[{"when": "(", "say": "x"}])
    with pytest.raises(StartupError, match=r"engine\.script\[0\]\.when = '\('"):
        await supervisor.start()
    assert supervisor.client.status().state is State.FAILED
    assert await supervisor.stop()


async def test_a_factory_outside_the_package_is_refused(placement: str, supervisor_of: Any) -> None:
    supervisor = supervisor_of(placement, factory="os:getcwd")
    with pytest.raises(StartupError, match=r"'os:getcwd' does not start with 'mlxcel\.'"):
        await supervisor.start()


async def test_stop_fails_what_is_still_open(
    placement: str, running: Any, submit: Callable[..., Submit]
) -> None:
    async with running(placement, delay_ms=20) as supervisor:
        channel = ask(supervisor.client, submit("a", "x" * 1000))
        assert await channel.next() == RowAccepted("a")
        assert await supervisor.stop()
    assert isinstance((await events_of(channel))[-1], RowFailed)


async def test_stop_ends_the_wait_for_a_restart(
    placement: str, running: Any, submit: Callable[..., Submit]
) -> None:
    patient = {"backoff": {"initial_s": 600.0, "factor": 2.0, "max_s": 600.0, "reset_s": 60.0}}
    async with running(placement, workers=patient) as supervisor:
        await events_of(ask(supervisor.client, submit("a", "crash now")))
        async with asyncio.timeout(PATIENCE_S):
            assert await supervisor.stop()
    assert supervisor.client.status().state is State.STOPPED
