"""Which answers of the service are committed to their conversation, and as what."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheUse
from mlxcel.core.events import Event
from mlxcel.core.request import ChatPrompt, GenerationRequest, Message
from mlxcel.generation.conversations import ConversationService
from mlxcel.generation.service import GenerationService
from mlxcel.link.messages import RowAccepted, RowFailed, RowTokens, unpack_tokens
from tests.generation.file_worker import FileWorker
from tests.generation.scripted import CACHE, ERROR, STARTED, ScriptedChat, request, rows, service

pytestmark = pytest.mark.asyncio
SECTION = {
    "enabled": True,
    "max_conversations": 4,
    "ttl_secs": 0,
    "auto_id": True,
    "auto_fixed": "_default",
    "disk_max_bytes": 10_000,
    "disk_budget_bytes": 10_000,
}


class Chat(ScriptedChat):
    """Plays rows, and writes files."""

    def __init__(self, played: Any) -> None:
        super().__init__(played)
        self.ask = FileWorker().ask


def made(chat: Chat, folder: Path) -> tuple[GenerationService, ConversationService]:
    cache = CACHE | {"conversations": SECTION | {"disk_dir": str(folder)}}
    built = service(chat, cache=cache)
    assert built.conversations is not None
    return built, built.conversations


def asked(*messages: Message, **cache: Any) -> GenerationRequest:
    use = CacheUse(**({"conversation": "trip-1"} | cache))
    prompt = ChatPrompt(messages=messages or (Message(role="user", text="hi"),))
    return replace(request(), prompt=prompt, cache=use)


async def told(built: GenerationService, wanted: GenerationRequest) -> list[Event]:
    return [event async for event in built.generate(wanted)]


async def messages_of(kept: ConversationService, folder: Path) -> list[dict[str, Any]]:
    await kept.save("trip-1")
    text = (folder / "echo__trip-1.meta.json").read_text()
    messages: list[dict[str, Any]] = json.loads(text)["messages"]
    return messages


async def test_an_answer_that_has_ended_well(tmp_path: Path) -> None:
    built, kept = made(Chat(rows(b"hello")), tmp_path)
    await told(built, asked())
    assert await messages_of(kept, tmp_path) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
    ]


async def test_an_answer_that_goes_on_is_one_message(tmp_path: Path) -> None:
    built, kept = made(Chat(rows(b"lo")), tmp_path)
    begun = Message(role="assistant", text="hel")
    await told(built, asked(Message(role="user", text="hi"), begun))
    assert (await messages_of(kept, tmp_path))[1:] == [{"role": "assistant", "content": "hello"}]


@pytest.mark.parametrize(
    "cache",
    [
        pytest.param({"is_on": False, "is_reset": True}, id="reset"),
        pytest.param({"is_on": False}, id="cache-off"),
        pytest.param({"conversation": None}, id="no-conversation"),
    ],
)
async def test_what_is_not_kept_is_not_committed(tmp_path: Path, cache: dict[str, Any]) -> None:
    built, kept = made(Chat(rows(b"hello")), tmp_path)
    await told(built, asked(**cache))
    with pytest.raises(Exception, match="not found or no cache in memory"):
        await kept.save("trip-1")


async def test_an_answer_that_fails_is_not_committed(tmp_path: Path) -> None:
    played = [RowAccepted("r1"), STARTED, RowTokens(id="r1", ids=[104]), RowFailed("r1", ERROR)]
    built, kept = made(Chat(played), tmp_path)
    await told(built, asked())
    with pytest.raises(Exception, match="not found or no cache in memory"):
        await kept.save("trip-1")


async def test_an_answer_that_the_client_left_is_not_committed(tmp_path: Path) -> None:
    built, kept = made(Chat(rows(b"hello")), tmp_path)
    events = built.generate(asked())
    await anext(events)
    await events.aclose()
    with pytest.raises(Exception, match="not found or no cache in memory"):
        await kept.save("trip-1")


async def test_where_messages_end(tmp_path: Path) -> None:
    """The tokens of the worker are those of the rendering, up to the last one."""
    chat = Chat(rows(b"hello"))
    built, kept = made(chat, tmp_path)
    system = Message(role="system", text="be brief")
    await told(built, asked(system, Message(role="user", text="hi")))
    prompt = unpack_tokens(chat.submitted[0].tokens)
    worker = FileWorker()
    worker.tokens = [*prompt, *b"hell"]
    chat.ask = worker.ask
    await kept.save("trip-1")
    meta = json.loads((tmp_path / "echo__trip-1.meta.json").read_text())
    first, second, third = meta["boundary_offsets"]
    assert 0 < first < second <= len(prompt) < third == len(worker.tokens)
