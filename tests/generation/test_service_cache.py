"""The service and the prompt cache: what the worker is told, what it tells, what is remembered
and read ahead once an answer has ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mlxcel.core.cache import CacheReport, CacheStatus, CacheUse, Divergence, Reject, Source
from mlxcel.core.events import Accepted, Event, Finished, FinishReason, Timings, Usage
from mlxcel.core.request import ChatPrompt, GenerationRequest, Message
from mlxcel.core.status import State, WorkerStatus
from mlxcel.generation.collect import collect
from mlxcel.generation.service import GenerationService
from mlxcel.link.messages import (
    RowAccepted,
    RowEnded,
    RowEvent,
    RowFailed,
    RowFinished,
    RowStarted,
    RowTokens,
    unpack_tokens,
)
from tests.generation.scripted import (
    CACHE,
    ERROR,
    INFO,
    SILENCE,
    ScriptedChat,
    request,
    rows,
    service,
)
from tests.tiny.checkpoint import FIRST_MARKER, build_tiny_checkpoint

pytestmark = pytest.mark.asyncio
SHOWING = (
    "{% for m in messages %}<|user|>{{ m.reasoning_content }}|{{ m.content }}<|end|>{% endfor %}"
)
PRIMED = "{% if add_generation_prompt %}<|assistant|><think>{% endif %}"
CLOSE = FIRST_MARKER + 1
ANSWER = [*b"I wonder", CLOSE, *b"Yes."]
YES, NEXT = Message(role="assistant", text="Yes."), Message(role="user", text="and?")
HI = Message(role="user", text="hi")
OFF = CACHE | {"prompt": CACHE["prompt"] | {"enabled": False}}
WIDE = msgspec.structs.replace(INFO, vocab_size=280, context_window=0)
KEEPING = msgspec.structs.replace(WIDE, keeps_snapshots=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("thinker") / "thinker"
    markers = ("<think>", "</think>")
    return build_tiny_checkpoint(
        path, layers=1, hidden=16, markers=markers, template=SHOWING + PRIMED
    )


def thinking(folder: Path, chat: ScriptedChat, **changes: Any) -> GenerationService:
    return service(
        chat, model={"path": str(folder), "name": "t", "alias": [], "tags": []}, **changes
    )


def chat_of(answer: Sequence[int] = ANSWER, info: Any = WIDE) -> ScriptedChat:
    usage = Usage(prompt_tokens=5, completion_tokens=len(answer))
    timings = Timings(queued_ms=0.0, prompt_ms=0.0, decode_ms=0.0)
    chat = ScriptedChat(
        [
            RowAccepted("r1"),
            RowStarted("r1", queued_ms=0.0, prompt_ms=0.0),
            RowTokens(id="r1", ids=list(answer)),
            RowEnded(id="r1", reason=FinishReason.EOS),
            RowFinished("r1", usage, timings),
        ]
    )
    chat.state = WorkerStatus(name="chat", state=State.OK, model=info)
    return chat


def asking(*messages: Message, **changes: Any) -> GenerationRequest:
    return replace(request(), prompt=ChatPrompt(messages=messages or (HI,)), **changes)


async def events_of(made: GenerationService, asked: GenerationRequest) -> list[Event]:
    return [event async for event in made.generate(asked)]


def prompt_text(chat: ScriptedChat, at: int = -1) -> bytes:
    """Markers are left out."""
    return bytes(token for token in unpack_tokens(chat.submitted[at].tokens) if token < 256)


@pytest.mark.parametrize(
    ("use", "changes", "is_tagged"),
    [
        pytest.param(CacheUse(), {}, True, id="on"),
        pytest.param(CacheUse(is_on=False), {}, False, id="cold-request"),
        pytest.param(CacheUse(), {"cache": OFF}, False, id="server-off"),
    ],
)
async def test_worker_is_told_of_the_cache(
    use: CacheUse, changes: dict[str, Any], is_tagged: bool
) -> None:
    chat = ScriptedChat(rows(b"yes"))
    await collect(service(chat, **changes).generate(asking(cache=use)))
    assert (chat.submitted[0].cache is not None) is is_tagged


async def test_users_have_sessions_of_their_own() -> None:
    chat = ScriptedChat(rows(b"yes"))
    made = service(chat)
    for use in (CacheUse(), CacheUse(session="eve"), CacheUse(session="bob"), CacheUse()):
        await collect(made.generate(asking(cache=use)))
    tags = [one.cache for one in chat.submitted]
    anonymous = "__mlxcel_anon__"
    assert [tag and tag.session for tag in tags] == [anonymous, "key:eve", "key:bob", anonymous]


HIT = CacheReport(status=CacheStatus.HIT, reused=3, source=Source.MEMORY)
MISS = CacheReport(
    status=CacheStatus.MISS,
    reason=Reject.EMPTY_SET,
    diverged=Divergence(at=1, prompt_ids=tuple(b"a\xff"), entry_ids=tuple(b"ab")),
)


def reported(there: CacheReport | None, used: CacheReport | None) -> list[RowEvent]:
    usage = Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=2)
    timings = Timings(queued_ms=0.0, prompt_ms=0.0, decode_ms=0.0, cache=used)
    return [
        RowAccepted("r1", there),
        RowStarted("r1", 0.0, 0.0, used),
        RowTokens(id="r1", ids=list(b"ab")),
        RowEnded(id="r1", reason=FinishReason.EOS),
        RowFinished("r1", usage, timings),
    ]


async def test_reports_are_told_in_words() -> None:
    events = await events_of(service(ScriptedChat(reported(MISS, MISS))), request())
    accepted, finished = events[0], events[-1]
    assert isinstance(accepted, Accepted)
    assert isinstance(finished, Finished)
    for report in (accepted.cache, finished.timings.cache):
        assert report is not None
        assert report.diverged is not None
        texts = (report.diverged.prompt_text, report.diverged.entry_text)
        assert (report.reason, texts) == (Reject.EMPTY_SET, ("a\ufffd", "ab"))
    assert finished.usage.cached_tokens == 2


@pytest.mark.parametrize(
    ("used", "cached"),
    [
        pytest.param(HIT, 3, id="hit"),
        pytest.param(CacheReport(status=CacheStatus.MISS), 0, id="miss"),
        pytest.param(None, None, id="no-cache"),
    ],
)
async def test_answer_that_a_stop_ended_tells_what_was_used(
    used: CacheReport | None, cached: int | None
) -> None:
    script = [*reported(HIT, used)[:3], SILENCE]
    events = await events_of(service(ScriptedChat(script)), request(stop=("b",)))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.usage.cached_tokens, finished.timings.cache) == (cached, used)


async def test_thoughts_are_put_back_into_the_next_turn(folder: Path) -> None:
    chat = chat_of()
    made = thinking(folder, chat)
    answer = await collect(made.generate(asking()))
    assert (answer.choices[0].reasoning, answer.choices[0].text) == ("I wonder", "Yes.")
    await collect(made.generate(asking(HI, YES, NEXT)))
    assert prompt_text(chat) == b"|hiI wonder|Yes.|and?"


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        pytest.param({"cache": OFF}, CacheUse(), id="no-prompt-cache"),
        pytest.param({"cache": CACHE | {"reasoning_echo_max_bytes": 0}}, CacheUse(), id="off"),
        pytest.param({}, CacheUse(is_on=False), id="cold-request"),
        pytest.param({"skip_chat_parsing": True}, CacheUse(), id="raw"),
    ],
)
async def test_thoughts_are_not_put_back(
    folder: Path, changes: dict[str, Any], cache: CacheUse
) -> None:
    chat = chat_of()
    made = thinking(folder, chat, **changes)
    await collect(made.generate(asking(cache=cache)))
    await collect(made.generate(asking(HI, YES, NEXT)))
    assert prompt_text(chat) == b"|hi|Yes.|and?"


@pytest.mark.parametrize("remembering", [(False, True), (True, False)], ids=["kept", "put-back"])
async def test_thoughts_may_be_left_where_they_are(
    folder: Path, remembering: tuple[bool, bool]
) -> None:
    chat, (first, second) = chat_of(), remembering
    made = thinking(folder, chat)
    await collect(made.generate(asking(remembers_thoughts=first)))
    await collect(made.generate(asking(HI, YES, NEXT, remembers_thoughts=second)))
    assert prompt_text(chat) == b"|hi|Yes.|and?"


async def test_answer_that_failed_is_not_remembered(folder: Path) -> None:
    chat = chat_of()
    whole = chat.rows
    chat.rows = [*whole[:4], RowFailed("r1", ERROR)]
    made = thinking(folder, chat)
    await events_of(made, asking())
    chat.rows = whole
    await collect(made.generate(asking(HI, YES, NEXT)))
    assert prompt_text(chat) == b"|hi|Yes.|and?"


@pytest.mark.parametrize(
    ("info", "changes", "count"),
    [
        pytest.param(KEEPING, {}, 1, id="snapshots"),
        pytest.param(WIDE, {}, 0, id="plain-kv"),
        pytest.param(KEEPING, {"choices": 2}, 0, id="several-choices"),
        pytest.param(KEEPING, {"cache": CacheUse(is_on=False)}, 0, id="cold-request"),
    ],
)
async def test_next_turn_is_read_ahead_where_states_cannot_be_cut(
    folder: Path, info: Any, changes: dict[str, Any], count: int
) -> None:
    chat = chat_of(info=info)
    if changes.get("choices") == 2:
        second = RowTokens(id="r1", ids=list(ANSWER), choice=1)
        end = RowEnded(id="r1", reason=FinishReason.EOS, choice=1)
        chat.rows = [*chat.rows[:4], second, end, *chat.rows[4:]]
    await collect(thinking(folder, chat).generate(asking(**changes)))
    await settled()
    assert len(chat.warmed) == count
    if count:
        tag = chat.submitted[0].cache
        assert tag is not None
        assert chat.warmed[0].tag == msgspec.structs.replace(
            tag, boundary=len(chat.warmed[0].tokens) // 4
        )


async def test_next_prompt_begins_with_what_was_read_ahead(folder: Path) -> None:
    chat = chat_of(info=KEEPING)
    made = thinking(folder, chat)
    await collect(made.generate(asking()))
    await settled()
    await collect(made.generate(asking(HI, YES, NEXT)))
    assert chat.submitted[1].tokens.startswith(chat.warmed[0].tokens)
    assert not chat.submitted[1].tokens.startswith(chat.submitted[0].tokens)


async def test_closing_drops_what_was_to_be_read_ahead(folder: Path) -> None:
    chat = chat_of(info=KEEPING)
    made = thinking(folder, chat)
    await collect(made.generate(asking()))
    made.close()
    await settled()
    assert chat.warmed == []


async def settled() -> None:
    """Whatever runs beside the test has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
