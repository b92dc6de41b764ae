"""The front's part of conversations: the book, saving and loading through the worker."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.conversations import IdRules
from mlxcel.core.errors import ErrorInfo, RemoteError
from mlxcel.core.request import Message, ToolCall
from mlxcel.generation.conversation_files import ConversationFolder, ConversationNotSaved
from mlxcel.generation.conversations import (
    ConversationBook,
    ConversationNotFound,
    ConversationService,
    Record,
    message_hash,
)
from mlxcel.generation.message_ends import message_ends
from mlxcel.link.messages import Question
from tests.generation.file_worker import FileWorker

USER = Message(role="user", text="hi")
ANSWER = Message(role="assistant", text="hello")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def service(path: Path, worker: FileWorker, **limits: Any) -> ConversationService:
    rules: dict[str, Any] = {"most_bytes": 10_000, "budget_bytes": 10_000}
    return ConversationService(
        ids=IdRules(),
        book=ConversationBook(most=32, ttl_s=3600),
        folder=ConversationFolder(path, model="tiny-chat", **(rules | limits)),
        chat=worker,
    )


def commit(kept: ConversationService, conversation: str = "trip-1") -> None:
    kept.commit(conversation, [USER, ANSWER], lambda tokens: [2, len(tokens)])


def record(text: str) -> Record:
    return Record(messages=(), hashes=(text,), ends=lambda _: [], ts=0.0)


def test_hash_of_a_message() -> None:
    assert message_hash(USER) == "e04b2f4bb0641c78"


def test_the_least_recently_used_goes() -> None:
    book = ConversationBook(most=2, ttl_s=0)
    book.put("a", record("a"))
    book.put("b", record("b"))
    book.get("a")
    book.put("c", record("c"))
    assert [name for name in "abc" if book.get(name) is not None] == ["a", "c"]


def test_idle_ones_expire_and_use_keeps_them() -> None:
    clock = Clock()
    book = ConversationBook(most=9, ttl_s=3600, clock=clock)
    book.put("a", record("a"))
    book.put("b", record("b"))
    clock.now += 3600
    assert book.get("a") is not None
    clock.now += 1
    assert (book.get("b"), len(book)) == (None, 1)


def test_without_a_ttl_nothing_expires() -> None:
    clock = Clock()
    book = ConversationBook(most=9, ttl_s=0, clock=clock)
    book.put("a", record("a"))
    clock.now += 10**9
    assert len(book) == 1


@pytest.mark.asyncio
async def test_saved_is_what_the_worker_wrote_with_what_the_front_knows(tmp_path: Path) -> None:
    worker = FileWorker()
    kept = service(tmp_path, worker)
    commit(kept)
    saved = await kept.save("trip-1", title="Lisbon notes")
    assert (saved.id, saved.bytes, saved.tokens) == ("trip-1", 64, 4)
    (item,) = await kept.items()
    assert (item.title, item.tokens, item.prefix) == ("Lisbon notes", 4, "hi")
    assert item.size_bytes == saved.bytes + saved.meta_bytes
    question, told = worker.asked[0]
    assert question is Question.CONVERSATION_SAVE
    assert told["session"] == "conv:trip-1"
    assert Path(told["path"]).parent == tmp_path


@pytest.mark.asyncio
async def test_saving_again_keeps_the_title(tmp_path: Path) -> None:
    kept = service(tmp_path, FileWorker())
    commit(kept)
    await kept.save("trip-1", title="Lisbon notes")
    commit(kept)
    await kept.save("trip-1")
    assert [item.title for item in await kept.items()] == ["Lisbon notes"]


@pytest.mark.asyncio
async def test_one_that_is_not_in_memory_is_not_saved(tmp_path: Path) -> None:
    worker = FileWorker()
    with pytest.raises(ConversationNotFound, match="not found or no cache in memory"):
        await service(tmp_path, worker).save("trip-1")
    assert worker.asked == []


@pytest.mark.asyncio
async def test_what_the_worker_refuses_leaves_no_file(tmp_path: Path) -> None:
    worker = FileWorker(refusal=ErrorInfo(code="conversation_not_found", status=404, message="no"))
    kept = service(tmp_path, worker)
    commit(kept)
    with pytest.raises(RemoteError, match="no") as refused:
        await kept.save("trip-1")
    assert (refused.value.status, list(tmp_path.iterdir())) == (404, [])


@pytest.mark.asyncio
async def test_limits_bind_and_may_be_lifted(tmp_path: Path) -> None:
    kept = service(tmp_path, FileWorker(), most_bytes=63)
    commit(kept)
    with pytest.raises(ConversationNotSaved):
        await kept.save("trip-1")
    assert (await kept.save("trip-1", is_unlimited=True)).bytes == 64


@pytest.mark.asyncio
async def test_saves_at_once_keep_the_budget(tmp_path: Path) -> None:
    kept = service(tmp_path, FileWorker(), budget_bytes=0)
    for name in "abcd":
        commit(kept, name)
    await asyncio.gather(*(kept.save(name) for name in "abcd"))
    assert len(await kept.items()) == 1


@pytest.mark.asyncio
async def test_loaded_after_a_restart_and_saved_again(tmp_path: Path) -> None:
    before = service(tmp_path, FileWorker())
    commit(before)
    await before.save("trip-1", title="Lisbon notes")
    worker = FileWorker()
    after = service(tmp_path, worker)
    loaded = await after.load("trip-1")
    assert (loaded.tokens, loaded.has_boundary, loaded.has_hashes) == (4, True, True)
    assert worker.asked == [
        (
            Question.CONVERSATION_LOAD,
            {
                "session": "conv:trip-1",
                "path": str(tmp_path / "tiny-chat__trip-1.safetensors"),
            },
        )
    ]
    meta = (tmp_path / "tiny-chat__trip-1.meta.json").read_bytes()
    assert await after.delete("trip-1")
    await after.save("trip-1")
    again = (tmp_path / "tiny-chat__trip-1.meta.json").read_bytes()
    assert again.split(b'"title"')[1] == meta.split(b'"title"')[1]


@pytest.mark.asyncio
async def test_a_description_of_other_tokens_is_not_believed(tmp_path: Path) -> None:
    kept = service(tmp_path, FileWorker())
    commit(kept)
    await kept.save("trip-1")
    path = tmp_path / "tiny-chat__trip-1.meta.json"
    path.write_text(path.read_text().replace("[1,15,7,42]", "[1,15]"))
    loaded = await kept.load("trip-1")
    assert (loaded.tokens, loaded.has_boundary, loaded.has_hashes) == (4, False, False)


@pytest.mark.asyncio
async def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(ConversationNotFound, match="not found on disk"):
        await service(tmp_path, FileWorker()).load("trip-1")


@pytest.mark.asyncio
async def test_calls_are_kept_as_clients_write_them(tmp_path: Path) -> None:
    kept = service(tmp_path, FileWorker())
    call = ToolCall(id="c1", name="f", arguments="{}")
    result = Message(role="tool", text="3", call_id="c1", name="f")
    asked = Message(role="assistant", calls=(call,), reasoning="hm")
    kept.commit("t", [USER, asked, result, ANSWER], lambda _: [])
    await kept.save("t")
    text = (tmp_path / "tiny-chat__t.meta.json").read_text()
    assert '"tool_calls":[{"id":"c1","type":"function","function":{"name":"f"' in text
    assert '"tool_call_id":"c1"' in text
    assert '"reasoning_content":"hm"' in text


SECTION = {
    "enabled": True,
    "max_tokens": 131072,
    "snapshots": 1,
    "max_conversations": 2,
    "ttl_secs": 3600,
    "auto_id": False,
    "auto_fixed": "_default",
    "disk_dir": None,
    "disk_max_bytes": 1,
    "disk_budget_bytes": 1,
}


def test_from_the_configuration(tmp_path: Path) -> None:
    def made(**changed: Any) -> ConversationService | None:
        return ConversationService.of(
            SECTION | changed, model="m", cache_dir=tmp_path, chat=FileWorker()
        )

    assert made(enabled=False) is None
    kept = made()
    assert kept is not None
    assert kept.ids == IdRules(has_auto=False, fixed="_default")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("asked", "folder"),
    [
        pytest.param(None, "cache/conversations", id="cache-dir"),
        pytest.param("own", "own", id="own"),
    ],
)
async def test_the_folder(tmp_path: Path, asked: str | None, folder: str) -> None:
    kept = ConversationService.of(
        SECTION
        | {"disk_dir": None if asked is None else str(tmp_path / asked), "disk_max_bytes": 99},
        model="m",
        cache_dir=tmp_path / "cache",
        chat=FileWorker(),
    )
    assert kept is not None
    commit(kept)
    await kept.save("trip-1")
    assert (tmp_path / folder / "m__trip-1.safetensors").exists()


def _bytes(text: str) -> list[int]:
    return list(text.encode())


@pytest.mark.parametrize(
    ("texts", "said", "ends"),
    [
        pytest.param(["ab", "abcde"], "abcde", [2, 5], id="whole"),
        pytest.param(["ab", "abcde"], "abcdefgh", [2, 5], id="goes-on"),
        pytest.param(["ab", "abcde", "abcdef"], "abcd", [2, 4, 4], id="last-token-not-read"),
        pytest.param(["ab", "abcde"], "axcde", [1, 1], id="other-tokens"),
        pytest.param(["abX", "abcde"], "abcde", [2, 5], id="last-turn-rendered-otherwise"),
        pytest.param(["", "abc"], "abc", [0, 3], id="refused-by-the-template"),
        pytest.param([], "abc", [], id="nothing"),
    ],
)
def test_ends_of_messages(texts: list[str], said: str, ends: list[int]) -> None:
    assert message_ends(texts, _bytes, _bytes(said)) == ends
