"""A worker as the rest of the front sees it: open, send, cancel, ask, warm, status.

Knows nothing of processes and sockets; the supervisor tells it which incarnation to talk to.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from mlxcel.core.admission import is_full
from mlxcel.core.errors import (
    AnswerTimeout,
    BadRequest,
    QueueFull,
    RemoteError,
    Unavailable,
    WorkerDied,
)
from mlxcel.core.status import ModelInfo, State, WorkerStats, WorkerStatus
from mlxcel.link.channel import Channel
from mlxcel.link.messages import (
    Ask,
    Cancel,
    EndThinking,
    Frame,
    Question,
    Reply,
    RowFailed,
    RowFinished,
    SetLora,
    Submit,
    ToWorker,
    Warm,
)

Send = Callable[[ToWorker], bool]
"""Hands a message to the worker; False when nobody is there to take it."""
ANSWER_TIMEOUT_S = 30.0


class WorkerClient:
    """Owned by the event loop: every method is called on it, and none but `ask` waits."""

    def __init__(self, name: str, *, max_queue_depth: int) -> None:
        self.name = name
        self._max_queue_depth = max_queue_depth
        self._channels: dict[str, Channel] = {}
        self._asked: dict[str, asyncio.Future[Reply]] = {}
        self._send: Send | None = None
        self._stats: WorkerStats | None = None
        self._lora: SetLora | None = None
        self._status = WorkerStatus(name=name, state=State.LOADING)

    # What generation calls.

    def open(self, request_id: str) -> Channel:
        """Takes a place for a request before its prompt is made; `cancel` gives it back.

        Raises QueueFull or Unavailable at once; never waits.
        """
        self._ready()
        if request_id in self._channels:
            raise BadRequest(f"the request id {request_id!r} belongs to a request that still runs")
        if self._is_full():
            raise QueueFull
        channel = self._channels[request_id] = Channel()
        return channel

    def send(self, submit: Submit) -> None:
        """Hands the request over. Raises WorkerDied when the worker went away meanwhile."""
        if submit.id not in self._channels or self._send is None or not self._send(submit):
            raise WorkerDied(self.name, "its connection is gone")

    def cancel(self, request_id: str, choice: int | None = None) -> None:
        """Forgets a request; a no-op once it has finished. With `choice` only that one: the
        events of the others go on coming."""
        if choice is not None:
            if request_id in self._channels and self._send is not None:
                self._send(Cancel(id=request_id, choice=choice))
            return
        channel = self._channels.pop(request_id, None)
        if channel is None:
            return
        channel.close()
        if self._send is not None:
            self._send(Cancel(id=request_id))

    async def ask(
        self,
        question: Question,
        options: dict[str, Any] | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> dict[str, Any]:
        """The worker's answer: it gives one between two steps. Raises what the worker answers as
        an error, else Unavailable, WorkerDied or AnswerTimeout."""
        send, name = self._ready(), uuid.uuid4().hex
        answer = self._asked[name] = asyncio.get_running_loop().create_future()
        try:
            if not send(Ask(id=name, question=question, options=options or {})):
                raise WorkerDied(self.name, "its connection is gone")
            async with asyncio.timeout(timeout_s):
                reply = await answer
        except TimeoutError as why:
            raise AnswerTimeout(self.name, question.value, timeout_s) from why
        finally:
            del self._asked[name]
        if reply.error is not None:
            raise RemoteError(reply.error)
        return reply.value

    def end_thinking(self, request_id: str) -> None:
        """A no-op for a request that is not open."""
        if request_id in self._channels and self._send is not None:
            self._send(EndThinking(request_id))

    def warm(self, message: Warm) -> None:
        """For whenever the worker is idle; nothing happens when it is not there."""
        if self._send is not None and self._status.state is State.OK:
            self._send(message)

    def set_lora(self, message: SetLora) -> None:
        """For this incarnation of the worker, and for each that follows when it is ready."""
        self._lora = message
        if self._send is not None:
            self._send(message)

    def status(self) -> WorkerStatus:
        stats = WorkerStats() if self._stats is None else self._stats
        return msgspec.structs.replace(self._status, stats=stats)

    # What the supervisor calls.

    def report(self, **changes: Any) -> None:
        """Changes fields of the status."""
        self._status = msgspec.structs.replace(self._status, **changes)

    def connect(self, send: Send, model: ModelInfo) -> None:
        """An incarnation is ready."""
        self._send = send
        if self._lora is not None:
            send(self._lora)
        self.report(state=State.OK, detail="", model=model)

    def deliver(self, frame: Frame) -> None:
        """Splits a frame by request. Events of requests cancelled meanwhile are dropped, and
        answers nobody waits for any longer."""
        self._stats = frame.stats
        for reply in frame.replies:
            self._answer(reply)
        for event in frame.events:
            channel = self._channels.get(event.id)
            if channel is None:
                continue
            if isinstance(event, RowFinished | RowFailed):
                del self._channels[event.id]
            channel.put(event)

    def lost(self, how: str) -> None:
        """The incarnation is gone, and everything it worked on with it."""
        self._send = None
        if self._stats is not None:
            # Nothing runs, but how many slots there are is still true.
            self._stats = WorkerStats(slots=self._stats.slots)
        channels, self._channels = self._channels, {}
        for request_id, channel in channels.items():
            channel.put(RowFailed(request_id, WorkerDied(self.name, how).info()))
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(WorkerDied(self.name, how))

    def _ready(self) -> Send:
        """Raises Unavailable."""
        if self._send is None or self._status.state is not State.OK:
            raise Unavailable(_why_not(self._status))
        return self._send

    def _answer(self, reply: Reply) -> None:
        answer = self._asked.get(reply.id)
        if answer is not None and not answer.done():
            answer.set_result(reply)

    def _is_full(self) -> bool:
        # Until its first frame says how many slots there are, the worker itself refuses.
        if self._stats is None:
            return False
        return is_full(len(self._channels), self._stats.slots, self._max_queue_depth)


def _why_not(status: WorkerStatus) -> str:
    about = f": {status.detail}" if status.detail else ""
    match status.state:
        case State.LOADING:
            return f"the {status.name} worker is loading{about}; retry later"
        case State.RESTARTING:
            return f"the {status.name} worker is restarting{about}; retry in a few seconds"
        case State.FAILED:
            return f"the {status.name} worker has failed and will not start again{about}"
        case _:
            return f"the {status.name} worker has stopped{about}"
