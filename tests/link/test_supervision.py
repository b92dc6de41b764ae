"""What only processes do: die, hang, fall silent, outlive their front, ignore a request to end."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlxcel.core.errors import StartupError
from mlxcel.core.status import State
from mlxcel.link.channel import Channel
from mlxcel.link.messages import PartSpec, RowEvent, RowFailed, RowTokens, Submit
from mlxcel.link.supervisor import Supervisor
from tests.link.asking import ask

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]
PATIENCE_S = 20
Submitter = Callable[..., Submit]

SLOW_PART = """
import time
def build(options, progress):
    progress("reading slowly", 0.5)
    while True:
        time.sleep(0.05)
"""
STUBBORN_PART = """
import signal, time
def build(options, progress):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    progress("ignoring you", None)
    time.sleep(600)
"""


def part(module: str) -> list[PartSpec]:
    return [PartSpec(name="p", factory=f"{module}:build", options={}, needs=[], provides=["p"])]


async def events_of(channel: Channel) -> list[RowEvent]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in channel]


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not claim():
            await asyncio.sleep(0.01)


async def begun(supervisor: Supervisor, submit: Submit) -> Channel:
    channel: Channel = ask(supervisor.client, submit)
    async with asyncio.timeout(PATIENCE_S):
        while not isinstance(await channel.next(), RowTokens):
            pass
    return channel


def tokens_in(events: list[RowEvent]) -> int:
    return sum(len(event.ids) for event in events if isinstance(event, RowTokens))


async def test_kill_in_mid_stream_costs_one_answer(running: Any, submit: Submitter) -> None:
    async with running(delay_ms=20) as supervisor:
        client = supervisor.client
        channel = await begun(supervisor, submit("a", "x" * 1000))
        first_pid = client.status().pid
        os.kill(first_pid, signal.SIGKILL)
        last = (await events_of(channel))[-1]
        assert isinstance(last, RowFailed)
        assert "killed by SIGKILL" in last.error.message
        assert client.status().state is State.RESTARTING
        await until(lambda: client.status().state is State.OK)
        assert client.status().pid != first_pid
        assert client.status().restarts == 1
        assert tokens_in(await events_of(ask(client, submit("b", "hello")))) == len("hi there")


async def test_a_tick_that_never_returns_is_killed(running: Any, submit: Submitter) -> None:
    async with running(workers={"tick_timeout_s": 0.5}) as supervisor:
        client = supervisor.client
        last = (await events_of(ask(client, submit("a", "hang now"))))[-1]
        assert isinstance(last, RowFailed)
        assert "has been running for" in last.error.message
        await until(lambda: client.status().state is State.OK)
        assert tokens_in(await events_of(ask(client, submit("b", "hello")))) == len("hi there")


async def test_a_silent_worker_is_killed(running: Any) -> None:
    silence = {"heartbeat": {"interval_s": 0.1, "timeout_s": 0.5}}
    async with running(workers=silence) as supervisor:
        client = supervisor.client
        first_pid = client.status().pid
        os.kill(first_pid, signal.SIGSTOP)
        await until(lambda: client.status().state is State.RESTARTING)
        assert "no heartbeat" in client.status().detail
        await until(lambda: client.status().state is State.OK)
        assert not psutil.pid_exists(first_pid)


async def test_an_idle_worker_ends_by_itself_on_sigterm(running: Any) -> None:
    async with running() as supervisor:
        os.kill(supervisor.client.status().pid, signal.SIGTERM)
        await until(lambda: supervisor.client.status().state is State.RESTARTING)
        assert supervisor.client.status().detail == "exit code 0"


async def test_ctrl_c_does_not_reach_the_worker(running: Any, submit: Submitter) -> None:
    async with running() as supervisor:
        pid = supervisor.client.status().pid
        assert os.getsid(pid) != os.getsid(0)
        os.kill(pid, signal.SIGINT)
        assert tokens_in(await events_of(ask(supervisor.client, submit("a", "hello")))) == 8


async def test_stop_while_loading(supervisor_of: Any, extra_module: Any) -> None:
    supervisor = supervisor_of(parts=part(extra_module("slow_part", SLOW_PART)))
    starting = asyncio.create_task(supervisor.start())
    await until(lambda: supervisor.client.status().detail == "reading slowly 50%")
    pid = supervisor.client.status().pid
    assert supervisor.client.status().state is State.LOADING
    assert await supervisor.stop()
    with pytest.raises(StartupError, match="stopped before it was ready"):
        await starting
    assert not psutil.pid_exists(pid)


async def test_a_worker_that_ignores_sigterm_is_killed(
    supervisor_of: Any, extra_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxcel.link.supervisor.TERM_GRACE_S", 0.2)
    supervisor = supervisor_of(parts=part(extra_module("stubborn_part", STUBBORN_PART)))
    starting = asyncio.create_task(supervisor.start())
    await until(lambda: supervisor.client.status().detail == "ignoring you")
    pid = supervisor.client.status().pid
    assert not await supervisor.stop(deadline=time.monotonic() + 0.3)
    with pytest.raises(StartupError):
        await starting
    assert not psutil.pid_exists(pid)


async def test_a_start_that_takes_too_long_is_given_up(
    supervisor_of: Any, extra_module: Any
) -> None:
    module = extra_module("slow_part", SLOW_PART)
    supervisor = supervisor_of(parts=part(module), workers={"start_timeout_s": 1.0})
    with pytest.raises(StartupError, match="not ready after 1 s"):
        await supervisor.start()


async def test_the_state_of_a_slow_reader_is_one_merged_event(
    running: Any, submit: Submitter
) -> None:
    async with running() as supervisor:
        channel = ask(supervisor.client, submit("a", "x" * 2000))
        await until(lambda: supervisor.client.status().stats.completed == 1)
        events = await events_of(channel)
    assert len(events) == 5  # accepted, started, all tokens, ended, finished
    assert tokens_in(events) == 1000


async def test_sockets_leave_nothing_behind(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    async with running() as supervisor:
        assert len(list(short.iterdir())) == 1
        assert supervisor.client.status().state is State.OK
    assert list(short.iterdir()) == []
    short.rmdir()


FRONT = """
import asyncio, sys
from mlxcel.link.messages import WorkerSpec
from mlxcel.link.supervisor import Supervisor

async def main(echo, workers):
    spec = WorkerSpec(
        name="chat", factory="mlxcel.engine.echo:EchoWorker", options=echo, parts=[]
    )
    supervisor = Supervisor(spec, placement="process", options=workers, max_queue_depth=1)
    await supervisor.start()
    imported = [name for name in ("mlx", "mlxcel.worker", "mlxcel.engine") if name in sys.modules]
    print(supervisor.client.status().pid, *imported, flush=True)
    await asyncio.sleep(600)
"""


async def test_a_killed_front_takes_its_worker_along(
    plain_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo, workers = plain_options
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(short))
    call = f"asyncio.run(main({echo!r}, {workers!r}))"
    code = FRONT + call
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as front:
        assert front.stdout is not None
        words = (await asyncio.to_thread(front.stdout.readline)).split()
        front.kill()
        pid = int(words[0])
        await until(lambda: not psutil.pid_exists(pid) or is_zombie(pid))
    assert words[1:] == [], "the front imported worker code"
    assert list(short.iterdir()) == [], "the sockets are left behind"
    short.rmdir()


def is_zombie(pid: int) -> bool:
    """Its parent is gone, and in a container nobody may be there to reap it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
