import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.byte_vocab import END
from mlxcel.core.errors import (
    ContextLengthExceeded,
    ErrorInfo,
    QueueFull,
    RemoteError,
    StartupError,
    Unavailable,
)
from mlxcel.core.events import Accepted, Failed, Finished, FinishReason, TextDelta, Timings, Usage
from mlxcel.core.request import ChatPrompt, GenerationRequest, Message, SamplingParams
from mlxcel.core.settings import SamplingDefaults, Settings
from mlxcel.core.status import ModelInfo, State, WorkerStatus
from mlxcel.generation.collect import collect
from mlxcel.generation.service import GenerationService
from mlxcel.link.messages import (
    RowAccepted,
    RowEvent,
    RowFailed,
    RowFinished,
    RowStarted,
    RowTokens,
    Submit,
)
from tests.tiny.checkpoint import build_tiny_checkpoint

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


class ScriptedChannel:
    """Plays rows; None among them is silence without end."""

    def __init__(self, rows: Sequence[RowEvent | None]) -> None:
        self._rows = iter(rows)

    async def next(self) -> RowEvent:
        row = next(self._rows)
        if row is SILENCE:
            await asyncio.Event().wait()
        assert row is not None
        return row


class ScriptedChat:
    """A chat port that answers every request with the same rows and keeps what it was told."""

    def __init__(
        self, rows: Sequence[RowEvent | None] = (), *, refusal: Exception | None = None
    ) -> None:
        self.rows = rows
        self.refusal = refusal
        self.submitted: list[Submit] = []
        self.cancelled: list[str] = []
        self.state = WorkerStatus(name="chat", state=State.OK, model=INFO)

    def submit(self, submit: Submit) -> ScriptedChannel:
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append(submit)
        return ScriptedChannel(self.rows)

    def cancel(self, request_id: str, /) -> None:
        self.cancelled.append(request_id)

    def status(self) -> WorkerStatus:
        return self.state


def service(chat: ScriptedChat, **changes: Any) -> GenerationService:
    options = {
        "chat_template": {"text": None, "file": None},
        "model": {"path": None, "name": None, "alias": []},
        "engine_kind": "echo",
        "ctx_size": 0,
        "parallel": 4,
    }
    return GenerationService(options | changes, chat=chat)


def request(text: str = "hi", *, stop: tuple[str, ...] = ()) -> GenerationRequest:
    sampling = SamplingDefaults(
        temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, seed=None, max_tokens=512
    )
    settings = Settings(
        version=1, fingerprint="", sampling=sampling, decode_timeout_s=600, template_kwargs={}
    )
    return GenerationRequest(
        id="r1",
        prompt=ChatPrompt(messages=(Message(role="user", text=text),)),
        settings=settings,
        sampling=SamplingParams(),
        max_tokens=20,
        stop=stop,
        received_s=0.0,
    )


STARTED = RowStarted("r1", queued_ms=0.0, prompt_ms=0.0)


def rows(answer: bytes) -> list[RowEvent]:
    usage = Usage(prompt_tokens=5, completion_tokens=len(answer))
    timings = Timings(queued_ms=0.0, prompt_ms=0.0, decode_ms=0.0)
    return [
        RowAccepted("r1"),
        STARTED,
        RowTokens("r1", list(answer[:1])),
        RowTokens("r1", list(answer[1:])),
        RowFinished("r1", FinishReason.EOS, usage, timings),
    ]


@pytest.mark.asyncio
async def test_stream_is_accepted_text_finished() -> None:
    events = [event async for event in service(ScriptedChat(rows(b"yes"))).generate(request())]
    assert events[:-1] == [Accepted(5), TextDelta("y"), TextDelta("es")]
    assert isinstance(events[-1], Finished)


@pytest.mark.asyncio
async def test_collected_text_is_the_joined_stream() -> None:
    text = service(ScriptedChat(rows("naïve 🎭".encode())))
    deltas = [e.text async for e in text.generate(request()) if isinstance(e, TextDelta)]
    whole = await collect(text.generate(request()))
    assert whole.text == "".join(deltas) == "naïve 🎭"
    assert whole.reason is FinishReason.EOS


@pytest.mark.asyncio
async def test_row_is_cancelled_before_a_stop_is_told() -> None:
    chat = ScriptedChat(rows(b"yes"))
    events = service(chat).generate(request(stop=("e",)))
    async for event in events:
        if isinstance(event, Finished):
            assert (event.reason, event.matched_stop) == (FinishReason.STOP, "e")
            assert chat.cancelled == ["r1"]
            break
    else:
        pytest.fail("no finish")
    await events.aclose()


@pytest.mark.asyncio
async def test_leaving_early_cancels_the_row() -> None:
    chat = ScriptedChat([RowAccepted("r1"), STARTED, RowTokens("r1", [97]), SILENCE])
    events = service(chat).generate(request())
    await anext(events)
    await events.aclose()
    assert chat.cancelled == ["r1"]


@pytest.mark.asyncio
async def test_cancelled_task_cancels_the_row() -> None:
    chat = ScriptedChat([RowAccepted("r1"), SILENCE])
    task = asyncio.create_task(collect(service(chat).generate(request())))
    while not chat.submitted:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert chat.cancelled == ["r1"]


@pytest.mark.asyncio
async def test_watchdog_fails_a_row_that_has_begun_and_falls_silent() -> None:
    chat = ScriptedChat([RowAccepted("r1"), STARTED, RowTokens("r1", [97]), SILENCE])
    short = replace(request().settings, decode_timeout_s=0.01)  # type: ignore[arg-type]
    events = [e async for e in service(chat).generate(replace(request(), settings=short))]
    assert isinstance(events[-1], Failed)
    assert (events[-1].error.code, events[-1].error.status) == ("decode_timeout", 504)
    assert chat.cancelled


@pytest.mark.asyncio
async def test_watchdog_leaves_a_silent_prefill_alone() -> None:
    chat = ScriptedChat([RowAccepted("r1"), SILENCE])
    short = replace(request().settings, decode_timeout_s=0.01)  # type: ignore[arg-type]
    events = service(chat).generate(replace(request(), settings=short))
    assert await anext(events) == Accepted(5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(events), 0.1)


@pytest.mark.asyncio
async def test_refusal_by_the_worker_is_raised_before_any_event() -> None:
    chat = ScriptedChat([RowFailed("r1", ERROR)])
    with pytest.raises(RemoteError, match="NaN in the logits"):
        await anext(service(chat).generate(request()))


@pytest.mark.asyncio
async def test_full_queue_is_raised_before_any_event() -> None:
    chat = ScriptedChat(refusal=QueueFull())
    with pytest.raises(QueueFull):
        await anext(service(chat).generate(request()))


@pytest.mark.asyncio
async def test_failure_in_mid_stream_is_the_last_event() -> None:
    chat = ScriptedChat([RowAccepted("r1"), STARTED, RowTokens("r1", [97]), RowFailed("r1", ERROR)])
    events = [event async for event in service(chat).generate(request())]
    assert events == [Accepted(5), TextDelta("a"), Failed(ERROR)]
    with pytest.raises(RemoteError, match="NaN"):
        await collect(service(chat).generate(request()))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("state", "words"),
    [
        pytest.param(State.LOADING, r"loading \(weights\)", id="loading"),
        pytest.param(State.RESTARTING, r"chat worker is restarting \(weights\)", id="restarting"),
        pytest.param(State.FAILED, "not started again", id="failed"),
        pytest.param(State.STOPPED, "shutting down", id="stopped"),
    ],
)
async def test_worker_that_is_not_ready_is_said_at_once(state: State, words: str) -> None:
    chat = ScriptedChat()
    chat.state = WorkerStatus(name="chat", state=state, detail="weights")
    with pytest.raises(Unavailable, match=words):
        await anext(service(chat).generate(request()))


@pytest.mark.asyncio
async def test_window_is_the_slots_own() -> None:
    chat = ScriptedChat(rows(b"yes"))
    with pytest.raises(ContextLengthExceeded, match="64 tokens"):
        await anext(service(chat).generate(request("a" * 64)))
    await collect(service(chat).generate(request("a" * 50)))
    assert chat.submitted[0].max_tokens == 64 - 53


@pytest.mark.asyncio
async def test_checkpoint_folder_gives_tokens_and_template(tmp_path: Path) -> None:
    folder = build_tiny_checkpoint(tmp_path / "tiny", layers=1, hidden=16)
    chat = ScriptedChat(rows(b"yes"))
    text = service(chat, engine_kind="mlx", model={"path": str(folder), "name": None, "alias": []})
    assert (await collect(text.generate(request()))).text == "yes"
    assert END in chat.submitted[0].eos_ids


@pytest.mark.asyncio
@pytest.mark.parametrize("both", [False, True], ids=["file", "text-beats-file"])
async def test_configured_template_beats_the_checkpoints(tmp_path: Path, both: bool) -> None:
    path = tmp_path / "t.jinja"
    path.write_text("from the file")
    chat = ScriptedChat(rows(b"yes"))
    asked = {"text": "from text" if both else None, "file": str(path)}
    await collect(service(chat, chat_template=asked).generate(request()))
    assert len(chat.submitted[0].tokens) == 4 * len("from text" if both else "from the file")


def test_missing_template_file_stops_the_start_naming_the_key() -> None:
    with pytest.raises(StartupError, match=r"generation\.chat_template\.file: cannot read /no/"):
        service(ScriptedChat(), chat_template={"text": None, "file": "/no/where"})


@pytest.mark.parametrize(
    ("aliases", "served", "names"),
    [
        pytest.param([], "echo", ("echo",), id="plain"),
        pytest.param(["zoe", "bob"], "bob", ("bob", "zoe", "echo"), id="first-sorted-alias"),
    ],
)
def test_names_of_the_echo_model(aliases: list[str], served: str, names: tuple[str, ...]) -> None:
    model = service(ScriptedChat(), model={"path": None, "name": None, "alias": aliases}).model
    assert (model.id, model.names, model.aliases) == (served, names, tuple(sorted(aliases)))


def test_names_of_a_folder(tmp_path: Path) -> None:
    folder = build_tiny_checkpoint(tmp_path / "tiny", layers=1, hidden=16)
    chosen = {"path": str(folder), "name": "owner/small", "alias": ["gpt"]}
    model = service(ScriptedChat(), engine_kind="mlx", model=chosen).model
    assert model.id == "gpt"
    assert model.names == ("gpt", "small", "owner/small", "tiny", str(folder))
    chosen = {"path": str(folder), "name": "owner/small", "alias": []}
    assert service(ScriptedChat(), engine_kind="mlx", model=chosen).model.id == "small"


def test_facts_outlive_a_restart() -> None:
    chat = ScriptedChat()
    text = service(chat, ctx_size=1000)
    before = text.model
    assert (before.family, before.train_window, before.context_window) == ("llama", 512, 250)
    chat.state = WorkerStatus(name="chat", state=State.RESTARTING)
    assert text.model == before
