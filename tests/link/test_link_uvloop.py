"""The server runs on uvloop, the other tests on the loop of the standard library."""

from collections.abc import Callable
from typing import Any

import uvloop

from mlxcel.core.status import State
from mlxcel.link.messages import RowEvent, RowFailed, RowFinished, Submit
from tests.link.asking import ask


def test_a_process_works_and_dies_under_uvloop(running: Any, submit: Callable[..., Submit]) -> None:
    async def scenario() -> tuple[RowEvent, RowEvent, State]:
        async with running("process") as supervisor:
            client = supervisor.client
            good = [event async for event in ask(client, submit("a", "hello"))][-1]
            bad = [event async for event in ask(client, submit("b", "crash"))][-1]
            return good, bad, client.status().state

    good, bad, state = uvloop.run(scenario())
    assert isinstance(good, RowFinished)
    assert isinstance(bad, RowFailed)
    assert state is State.RESTARTING
