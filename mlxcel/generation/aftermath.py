"""What is done with an answer once it has ended, for the sake of the next turn: its thoughts are
remembered, and the worker may read how the next prompt will begin.

Lives on the event loop; only rendering and encoding leave it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from mlxcel.core.answer import Choice
from mlxcel.core.events import Event, Finished
from mlxcel.core.request import ChatPrompt
from mlxcel.core.status import ModelInfo
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.collect import Drafts
from mlxcel.generation.next_turn import warm_for
from mlxcel.generation.prepare import Prepared
from mlxcel.generation.reecho import ReasoningEcho
from mlxcel.generation.served import slot_window
from mlxcel.link.messages import RowEvent, RowTokens, Warm

JOBS = 8
"""Beginnings that wait to be rendered; more are not worth it."""


class Aftermath:
    def __init__(
        self,
        model: ChatModel,
        echo: ReasoningEcho | None,
        warm: Callable[[Warm], None],
        *,
        pool: Executor | None = None,
    ) -> None:
        """`warm` hands a beginning to the worker. `pool` None: a thread of its own, so that no
        prompt that a client waits for stands behind it."""
        self._model = model
        self._echo = echo
        self._warm = warm
        self._jobs: dict[str, asyncio.Task[None]] = {}
        """By session: one at a time of each."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="next turn") if pool is None else pool

    def listeners(self, prepared: Prepared, info: ModelInfo | None) -> list["ReplyListener"]:
        """Empty where nobody wants to know the answer."""
        warms = self._warms(prepared, info)
        if prepared.trail is None and not warms:
            return []
        return [ReplyListener(prepared, self, window=slot_window(info), warms=warms)]

    def close(self) -> None:
        for job in self._jobs.values():
            job.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def remember(self, prepared: Prepared, choices: tuple[Choice, ...]) -> None:
        """The thoughts of plain answers."""
        if prepared.trail is None or self._echo is None:
            return
        for choice in choices:
            if choice.reasoning and choice.text and not choice.calls:
                self._echo.keep(prepared.trail.key(choice.text), choice.reasoning)

    def look_ahead(
        self, prepared: Prepared, answer: Choice, said: list[int], *, window: int
    ) -> None:
        tag = prepared.submit.cache
        assert tag is not None, "asked before anybody listened"
        if tag.session in self._jobs or len(self._jobs) >= JOBS:
            return
        if self._model.marks is None and not answer.calls:
            return
        job = asyncio.get_running_loop().create_task(
            self._look_ahead(prepared, answer, said, window)
        )
        self._jobs[tag.session] = job
        job.add_done_callback(lambda _: self._jobs.pop(tag.session))

    async def _look_ahead(
        self, prepared: Prepared, answer: Choice, said: list[int], window: int
    ) -> None:
        def work() -> Warm | None:
            return warm_for(prepared, answer, said, model=self._model, window=window)

        message = await asyncio.get_running_loop().run_in_executor(self._pool, work)
        if message is not None:
            self._warm(message)

    def _warms(self, prepared: Prepared, info: ModelInfo | None) -> bool:
        """One answer has one next turn; what is no conversation has none."""
        if not isinstance(prepared.request.prompt, ChatPrompt):
            return False
        submit = prepared.submit
        is_kept = info is not None and info.keeps_snapshots and submit.cache is not None
        return is_kept and submit.choices == 1


class ReplyListener:
    """Hears one answer, and sees to it once it has ended well."""

    def __init__(
        self, prepared: Prepared, aftermath: Aftermath, *, window: int, warms: bool
    ) -> None:
        self._prepared = prepared
        self._aftermath = aftermath
        self._window = window
        self._warms = warms
        self._drafts = Drafts()
        self._said: list[int] = []

    def hear(self, row: RowEvent) -> None:
        if self._warms and isinstance(row, RowTokens):
            self._said += row.ids

    def told(self, event: Event) -> None:
        self._drafts.take(event)
        if not isinstance(event, Finished):
            return
        choices = self._drafts.ended()
        self._aftermath.remember(self._prepared, choices)
        if self._warms:
            self._aftermath.look_ahead(self._prepared, choices[0], self._said, window=self._window)
