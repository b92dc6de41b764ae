import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from mlxcel.core.byte_vocab import END
from mlxcel.core.errors import (
    BadRequest,
    ContextLengthExceeded,
    QueueFull,
    RemoteError,
    StartupError,
    Unavailable,
    WorkerDied,
)
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Failed,
    Finished,
    FinishReason,
    TextDelta,
)
from mlxcel.core.request import ChatPrompt, Message
from mlxcel.core.settings import LanguageBias
from mlxcel.core.status import State, WorkerStatus
from mlxcel.generation.collect import collect
from mlxcel.link.messages import (
    RowAccepted,
    RowFailed,
    RowTokens,
)
from tests.generation.scripted import (
    BEGAN,
    ERROR,
    INFO,
    SILENCE,
    STARTED,
    ScriptedChat,
    request,
    rows,
    service,
)
from tests.settings import settings
from tests.tiny.checkpoint import build_tiny_checkpoint


@pytest.mark.asyncio
async def test_stream_is_accepted_text_finished() -> None:
    events = [event async for event in service(ScriptedChat(rows(b"yes"))).generate(request())]
    end = ChoiceFinished(FinishReason.EOS)
    assert events[:-1] == [Accepted(5), BEGAN, TextDelta("y"), TextDelta("es"), end]
    assert isinstance(events[-1], Finished)


@pytest.mark.asyncio
async def test_collected_text_is_the_joined_stream() -> None:
    text = service(ScriptedChat(rows("naïve 🎭".encode())))
    deltas = [e.text async for e in text.generate(request()) if isinstance(e, TextDelta)]
    answer = await collect(text.generate(request()))
    assert [choice.text for choice in answer.choices] == ["".join(deltas)] == ["naïve 🎭"]
    assert answer.choices[0].reason is FinishReason.EOS


@pytest.mark.asyncio
async def test_row_is_cancelled_before_a_stop_is_told() -> None:
    chat = ScriptedChat(rows(b"yes"))
    events = service(chat).generate(request(stop=("e",)))
    async for event in events:
        if isinstance(event, ChoiceFinished):
            assert (event.reason, event.matched_stop) == (FinishReason.STOP, "e")
        if isinstance(event, Finished):
            assert chat.cancelled == ["r1"]
            break
    else:
        pytest.fail("no finish")
    await events.aclose()


@pytest.mark.asyncio
async def test_leaving_early_cancels_the_row() -> None:
    chat = ScriptedChat([RowAccepted("r1"), STARTED, RowTokens(id="r1", ids=[97]), SILENCE])
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
async def test_refusal_by_the_worker_is_raised_before_any_event() -> None:
    chat = ScriptedChat([RowFailed("r1", ERROR)])
    with pytest.raises(RemoteError, match="NaN in the logits"):
        await anext(service(chat).generate(request()))


@pytest.mark.asyncio
@pytest.mark.parametrize("refusal", [QueueFull(), Unavailable("loading")], ids=["full", "loading"])
async def test_without_a_place_nothing_is_prepared(refusal: Exception) -> None:
    chat = ScriptedChat(refusal=refusal)
    broken = {"text": "{{ raise_exception('rendered') }}", "file": None}
    with pytest.raises(type(refusal)):
        await anext(service(chat, chat_template=broken).generate(request()))
    assert (chat.submitted, chat.cancelled) == ([], [])


@pytest.mark.asyncio
async def test_a_prompt_that_is_refused_gives_its_place_back() -> None:
    chat = ScriptedChat()
    broken = {"text": "{{ raise_exception('rendered') }}", "file": None}
    with pytest.raises(BadRequest, match="rendered"):
        await anext(service(chat, chat_template=broken).generate(request()))
    assert (chat.submitted, chat.cancelled) == ([], ["r1"])


@pytest.mark.asyncio
async def test_a_worker_that_died_meanwhile_is_raised_before_any_event() -> None:
    chat = ScriptedChat(death=WorkerDied("chat", "its connection is gone"))
    with pytest.raises(WorkerDied):
        await anext(service(chat).generate(request()))
    assert chat.cancelled == ["r1"]


@pytest.mark.asyncio
async def test_failure_in_mid_stream_is_the_last_event() -> None:
    chat = ScriptedChat(
        [RowAccepted("r1"), STARTED, RowTokens(id="r1", ids=[97]), RowFailed("r1", ERROR)]
    )
    events = [event async for event in service(chat).generate(request())]
    assert events == [Accepted(5), BEGAN, TextDelta("a"), Failed(ERROR)]
    with pytest.raises(RemoteError, match="NaN"):
        await collect(service(chat).generate(request()))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("share", "window"),
    [pytest.param(64, 64, id="share"), pytest.param(0, 512, id="models-own")],
)
async def test_window_is_the_slots_own(share: int, window: int) -> None:
    chat = ScriptedChat(rows(b"yes"))
    model = msgspec.structs.replace(INFO, context_window=share)
    chat.state = WorkerStatus(name="chat", state=State.OK, model=model)
    with pytest.raises(ContextLengthExceeded, match=f"{window} tokens"):
        await anext(service(chat).generate(request("a" * (window - 3))))
    await collect(service(chat).generate(request("a" * (window - 4))))
    assert [len(one.tokens) // 4 for one in chat.submitted] == [window - 1]


@pytest.mark.asyncio
async def test_checkpoint_folder_gives_tokens_and_template(tmp_path: Path) -> None:
    folder = build_tiny_checkpoint(tmp_path / "tiny", layers=1, hidden=16)
    chat = ScriptedChat(rows(b"yes"))
    text = service(chat, model={"path": str(folder), "name": "tiny", "alias": [], "tags": []})
    assert (await collect(text.generate(request()))).choices[0].text == "yes"
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


@pytest.mark.asyncio
@pytest.mark.parametrize(("family", "is_guarded"), [("llama", False), ("gemma4", True)])
async def test_family_of_the_worker_decides_the_loop_guard(family: str, is_guarded: bool) -> None:
    chat = ScriptedChat(rows(b"yes"))
    model = msgspec.structs.replace(INFO, family=family)
    chat.state = WorkerStatus(name="chat", state=State.OK, model=model)
    await collect(service(chat).generate(request()))
    assert (chat.submitted[0].loop is not None) is is_guarded


@pytest.mark.asyncio
async def test_choices_are_all_told_and_the_request_cancelled_once_all_stopped() -> None:
    said = [RowTokens(id="r1", ids=list(b"a!"), choice=choice) for choice in range(3)]
    chat = ScriptedChat([RowAccepted("r1"), STARTED, *said, SILENCE])
    asked = replace(request(stop=("!",)), choices=3)
    answer = await collect(service(chat).generate(asked))
    assert [choice.text for choice in answer.choices] == ["a", "a", "a"]
    assert answer.usage.completion_tokens == 6
    assert chat.submitted[0].choices == 3
    assert chat.cancelled


@pytest.mark.asyncio
async def test_begun_answer_is_echoed_when_asked() -> None:
    begun = (Message(role="user", text="hi"), Message(role="assistant", text="Oh "))
    asked = replace(request(), prompt=ChatPrompt(messages=begun, echo=True))
    events = [e async for e in service(ScriptedChat(rows(b"yes"))).generate(asked)]
    assert events[1:5] == [TextDelta("Oh "), BEGAN, TextDelta("y"), TextDelta("es")]


@pytest.mark.asyncio
@pytest.mark.parametrize("rebuilds", [False, True])
async def test_index_of_languages_is_kept_and_rebuilt_when_asked(
    tmp_path: Path, rebuilds: bool
) -> None:
    chat = ScriptedChat(rows(b"yes"))
    english = replace(request(), settings=settings(language=LanguageBias(bias=(("en", -1.0),))))
    await collect(service(chat, cache_dir=str(tmp_path)).generate(english))
    assert chat.submitted[0].sampling.wide_bias
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    before = kept.stat().st_mtime_ns
    service(chat, cache_dir=str(tmp_path), lang_bias={"file": None, "rebuild_cache": rebuilds})
    assert (kept.stat().st_mtime_ns != before) is rebuilds


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
    model = service(
        ScriptedChat(), model={"path": None, "name": "echo", "alias": aliases, "tags": []}
    ).model
    assert (model.id, model.names, model.aliases) == (served, names, tuple(sorted(aliases)))


def test_names_of_a_folder(tmp_path: Path) -> None:
    folder = build_tiny_checkpoint(tmp_path / "tiny", layers=1, hidden=16)
    chosen = {"path": str(folder), "name": "owner/small", "alias": ["gpt"], "tags": []}
    model = service(ScriptedChat(), model=chosen).model
    assert model.id == "gpt"
    assert model.names == ("gpt", "small", "owner/small", "tiny", str(folder))
    chosen = {"path": str(folder), "name": "owner/small", "alias": [], "tags": []}
    assert service(ScriptedChat(), model=chosen).model.id == "small"


def test_tags_are_told_as_they_were_set() -> None:
    chosen = {"path": None, "name": "echo", "alias": [], "tags": ["b", "a"]}
    assert service(ScriptedChat(), model=chosen).model.tags == ("b", "a")


def test_facts_are_those_of_the_worker() -> None:
    chat = ScriptedChat()
    model = service(chat).model
    assert (model.family, model.train_window, model.context_window) == ("llama", 512, 64)
    chat.state = WorkerStatus(name="chat", state=State.LOADING)
    assert service(chat).model == replace(
        model, family="", vocab_size=0, hidden_size=0, train_window=0, context_window=0
    )


def test_it_says_which_markers_of_a_gap_its_model_lacks_and_has(tmp_path: Path) -> None:
    lacking = service(ScriptedChat([])).model
    assert (lacking.lacks_fim, lacking.fim_words) == (("prefix", "suffix", "middle"), ())
    words = ("<PRE>", "<SUF>", "<MID>")
    folder = build_tiny_checkpoint(tmp_path / "fim", layers=1, hidden=16, markers=words)
    able = service(ScriptedChat([]), model={"path": str(folder)}).model
    assert (able.lacks_fim, able.fim_words) == ((), words)
