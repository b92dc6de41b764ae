"""A service over a chat port that plays rows, and keeps what it was told."""

import asyncio
from collections.abc import Sequence
from typing import Any

from mlxcel.core.errors import (
    ErrorInfo,
)
from mlxcel.core.events import (
    FinishReason,
    Started,
    Timings,
    Usage,
)
from mlxcel.core.request import ChatPrompt, GenerationRequest, Message
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.status import ModelInfo, State, WorkerStatus
from mlxcel.generation.service import GenerationService
from mlxcel.link.messages import (
    Question,
    RowAccepted,
    RowEnded,
    RowEvent,
    RowFinished,
    RowStarted,
    RowTokens,
    SetLora,
    Submit,
    Warm,
)
from tests.settings import settings

INFO = ModelInfo(
    family="llama",
    vocab_size=264,
    context_window=64,
    train_window=512,
    hidden_size=64,
    parameters=1,
    weights_bytes=4,
    precision="float32",
    device="cpu",
)
ERROR = ErrorInfo(code="generation_failed", status=500, message="NaN in the logits")
SILENCE = None
MODEL: dict[str, Any] = {
    "path": None,
    "name": "echo",
    "alias": [],
    "tags": [],
    "lora": {"adapters": [], "init_without_apply": False, "fuse": False},
}
CACHE: dict[str, Any] = {
    "prompt": {"enabled": True, "capacity_bytes": None, "ram_mib": None},
    "conversations": {"enabled": False},
    "prefix_dir": None,
    "slot_save_path": None,
    "reasoning_echo_max_bytes": 16_777_216,
}
"""What the text side reads of the section `cache`, at its defaults."""


class ScriptedChannel:
    """Plays rows; None among them is silence without end."""

    def __init__(self, rows: Sequence[RowEvent | None]) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, SILENCE)
        self._put: asyncio.Future[RowEvent] = asyncio.get_running_loop().create_future()

    @property
    def is_ready(self) -> bool:
        return self._next is not SILENCE

    async def next(self) -> RowEvent:
        row, self._next = self._next, next(self._rows, SILENCE)
        if row is SILENCE:
            row = await self._put
        assert row is not None
        return row

    def put(self, event: RowEvent, /) -> None:
        self._put.set_result(event)


class ScriptedChat:
    """A chat port that answers every request with the same rows and keeps what it was told."""

    def __init__(
        self,
        rows: Sequence[RowEvent | None] = (),
        *,
        refusal: Exception | None = None,
        death: Exception | None = None,
    ) -> None:
        self.rows = rows
        self.refusal = refusal
        self.death = death
        self.submitted: list[Submit] = []
        self.cancelled: list[str] = []
        self.cut: list[int] = []
        self.warmed: list[Warm] = []
        self.ended: list[str] = []
        self.scales: list[SetLora] = []
        self.state = WorkerStatus(name="chat", state=State.OK, model=INFO)

    def open(self, request_id: str, /) -> ScriptedChannel:
        if self.refusal is not None:
            raise self.refusal
        return ScriptedChannel(self.rows)

    def send(self, submit: Submit, /) -> None:
        self.submitted.append(submit)
        if self.death is not None:
            raise self.death

    def cancel(self, request_id: str, /, choice: int | None = None) -> None:
        if choice is None:
            self.cancelled.append(request_id)
        else:
            self.cut.append(choice)

    def end_thinking(self, request_id: str, /) -> None:
        self.ended.append(request_id)

    def set_lora(self, message: SetLora, /) -> None:
        self.scales.append(message)

    async def ask(
        self,
        question: Question,
        options: dict[str, Any] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> dict[str, Any]:
        return {"asked": question}

    def warm(self, message: Warm, /) -> None:
        self.warmed.append(message)

    def status(self) -> WorkerStatus:
        return self.state


def service(chat: ScriptedChat, **changes: Any) -> GenerationService:
    options = {
        "chat_template": {"text": None, "file": None},
        "model": MODEL,
        "reasoning": {
            "enabled": "auto",
            "effort": "default",
            "preserve": False,
            "format": "auto",
            "budget_message": None,
        },
        "skip_chat_parsing": False,
        "prefill_assistant": True,
        "spm_infill": False,
        "lang_bias": {"file": None, "rebuild_cache": False},
        "cache_dir": None,
        "cache": CACHE,
        "sampling": {"logit_bias": []},
    }
    model = MODEL | changes.pop("model", {})
    return GenerationService(options | changes | {"model": model}, chat=chat)


def request(text: str = "hi", *, stop: tuple[str, ...] = ()) -> GenerationRequest:
    return GenerationRequest(
        id="r1",
        prompt=ChatPrompt(messages=(Message(role="user", text=text),)),
        settings=settings(),
        sampling=SamplingParams(),
        max_tokens=20,
        stop=stop,
        received_s=0.0,
    )


STARTED = RowStarted("r1", queued_ms=0.0, prompt_ms=0.0)
BEGAN = Started(0.0, 0.0)
"""The event it becomes."""


def rows(answer: bytes) -> list[RowEvent]:
    usage = Usage(prompt_tokens=5, completion_tokens=len(answer))
    timings = Timings(queued_ms=0.0, prompt_ms=0.0, decode_ms=0.0)
    return [
        RowAccepted("r1"),
        STARTED,
        RowTokens(id="r1", ids=list(answer[:1])),
        RowTokens(id="r1", ids=list(answer[1:])),
        RowEnded(id="r1", reason=FinishReason.EOS),
        RowFinished("r1", usage, timings),
    ]
