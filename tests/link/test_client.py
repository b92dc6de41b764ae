"""The client alone: `sent` is what a worker would have received."""

import asyncio
from collections.abc import Callable

import pytest

from mlxcel.core.errors import BadRequest, QueueFull, Unavailable, WorkerDied
from mlxcel.core.events import Timings, Usage
from mlxcel.core.status import ModelInfo, State, WorkerStats
from mlxcel.link.channel import Channel
from mlxcel.link.client import WorkerClient
from mlxcel.link.messages import (
    Cancel,
    Frame,
    RowAccepted,
    RowEvent,
    RowFailed,
    RowFinished,
    RowTokens,
    SetLora,
    Submit,
    ToWorker,
)
from tests.link.asking import ask

Submitter = Callable[..., Submit]
MODEL = ModelInfo(
    family="echo",
    vocab_size=264,
    context_window=0,
    train_window=4096,
    hidden_size=0,
    parameters=0,
    weights_bytes=0,
    precision="none",
    device="cpu",
)


def finished(request_id: str) -> RowFinished:
    usage = Usage(prompt_tokens=1, completion_tokens=1)
    timings = Timings(queued_ms=0, prompt_ms=0, decode_ms=0)
    return RowFinished(request_id, usage, timings)


def connected(sent: list[ToWorker], *, slots: int = 1) -> WorkerClient:
    client = WorkerClient("chat", max_queue_depth=1)
    client.connect(lambda message: sent.append(message) is None, MODEL)
    client.deliver(Frame([], WorkerStats(slots=slots)))
    return client


def read(channel: Channel) -> list[RowEvent]:
    async def drain() -> list[RowEvent]:
        return [event async for event in channel]

    return asyncio.run(asyncio.wait_for(drain(), 10))


def test_a_frame_is_split_by_request(submit: Submitter) -> None:
    client = connected([])
    a, b = ask(client, submit("a", "x")), ask(client, submit("b", "y"))
    events: list[RowEvent] = [RowTokens(id="a", ids=[1]), RowTokens(id="b", ids=[2]), finished("a")]
    client.deliver(Frame([*events, finished("b")], WorkerStats()))
    assert read(a) == [RowTokens(id="a", ids=[1]), finished("a")]
    assert read(b) == [RowTokens(id="b", ids=[2]), finished("b")]


def test_outstanding_requests_are_bounded_by_slots_and_queue(submit: Submitter) -> None:
    sent: list[ToWorker] = []
    client = connected(sent, slots=2)
    for name in "abc":
        ask(client, submit(name, "x"))
    with pytest.raises(QueueFull):
        ask(client, submit("d", "x"))
    client.deliver(Frame([finished("b")], WorkerStats(slots=2)))
    ask(client, submit("e", "x"))
    assert [message.id for message in sent if isinstance(message, Submit)] == ["a", "b", "c", "e"]


def test_before_its_first_frame_the_worker_itself_refuses(submit: Submitter) -> None:
    client = WorkerClient("chat", max_queue_depth=1)
    client.connect(lambda message: True, MODEL)
    channels = [ask(client, submit(str(at), "x")) for at in range(5)]
    assert len(channels) == 5


def test_cancel_tells_the_worker_once_and_drops_what_still_comes(submit: Submitter) -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    channel = ask(client, submit("a", "x"))
    client.cancel("a")
    client.cancel("a")
    client.deliver(Frame([RowTokens(id="a", ids=[1])], WorkerStats()))
    assert sent[1:] == [Cancel(id="a")]
    assert read(channel) == []


def test_cancel_of_a_finished_request_says_nothing(submit: Submitter) -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    ask(client, submit("a", "x"))
    client.deliver(Frame([finished("a")], WorkerStats()))
    client.cancel("a")
    assert len(sent) == 1


def test_a_lost_worker_fails_every_open_channel(submit: Submitter) -> None:
    client = connected([])
    a, b = ask(client, submit("a", "x")), ask(client, submit("b", "y"))
    client.deliver(Frame([RowAccepted("a"), finished("b")], WorkerStats(active=1)))
    client.lost("killed by SIGKILL")
    *_, last = read(a)
    assert isinstance(last, RowFailed)
    assert (last.error.code, last.error.status) == ("worker_died", 503)
    assert "killed by SIGKILL" in last.error.message
    assert read(b) == [finished("b")]
    assert client.status().stats.active == 0


@pytest.mark.parametrize(
    ("state", "words"),
    [
        pytest.param(State.LOADING, "is loading: reading weights; retry later", id="loading"),
        pytest.param(State.RESTARTING, "is restarting: reading weights", id="restarting"),
        pytest.param(State.FAILED, "will not start again: reading weights", id="failed"),
        pytest.param(State.STOPPED, "has stopped: reading weights", id="stopped"),
    ],
)
def test_a_worker_that_is_not_ready_is_unavailable(
    submit: Submitter, state: State, words: str
) -> None:
    client = connected([])
    client.report(state=state, detail="reading weights")
    with pytest.raises(Unavailable, match=words):
        ask(client, submit("a", "x"))


def test_a_broken_connection_is_a_dead_worker(submit: Submitter) -> None:
    client = WorkerClient("chat", max_queue_depth=1)
    client.connect(lambda message: False, MODEL)
    for _ in range(3):
        with pytest.raises(WorkerDied):
            ask(client, submit("a", "x"))
        client.cancel("a")  # gives the place back


def test_an_id_in_use_is_refused(submit: Submitter) -> None:
    client = connected([])
    ask(client, submit("a", "x"))
    with pytest.raises(BadRequest, match="'a'"):
        ask(client, submit("a", "x"))


def test_cancelling_one_choice_leaves_the_channel_open(submit: Submitter) -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    channel = client.open("a")
    client.send(submit("a", "hi"))
    client.cancel("a", 1)
    client.cancel("unknown", 1)
    assert sent[1:] == [Cancel(id="a", choice=1)]
    client.deliver(Frame([RowAccepted("a"), finished("a")], WorkerStats(slots=1)))
    assert read(channel) == [RowAccepted("a"), finished("a")]
    client.cancel("a", 0)
    assert len(sent) == 2


def test_adapter_scales_are_told_again_to_each_incarnation() -> None:
    sent: list[ToWorker] = []
    client = connected(sent)
    client.set_lora(SetLora(((0, 0.5),)))
    client.set_lora(SetLora(((0, 0.0),)))
    assert sent == [SetLora(((0, 0.5),)), SetLora(((0, 0.0),))]
    client.lost("killed")
    client.connect(lambda message: sent.append(message) is None, MODEL)
    assert sent[2:] == [SetLora(((0, 0.0),))]


def test_adapter_scales_set_while_the_worker_loads_are_told_when_it_is_ready() -> None:
    sent: list[ToWorker] = []
    client = WorkerClient("chat", max_queue_depth=1)
    client.set_lora(SetLora(((0, 0.5),)))
    client.connect(lambda message: sent.append(message) is None, MODEL)
    assert sent == [SetLora(((0, 0.5),))]
