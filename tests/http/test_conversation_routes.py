"""/v1/conv_kv over real HTTP: every status of the seed, and its bodies."""

import asyncio
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.conversations import IdRules
from mlxcel.core.errors import ErrorInfo, Unavailable
from mlxcel.core.request import Message
from mlxcel.generation.conversation_files import ConversationFolder
from mlxcel.generation.conversations import ConversationBook, ConversationService
from tests.generation.file_worker import FileWorker
from tests.http.site import Scripted, Site, Start

pytestmark = pytest.mark.asyncio
USER, ANSWER = Message(role="user", text="hi"), Message(role="assistant", text="hello")
Usage = namedtuple("Usage", "total used free")


def conversations(
    folder: Path, worker: FileWorker | None = None, **limits: Any
) -> ConversationService:
    rules: dict[str, Any] = {"most_bytes": 10_000, "budget_bytes": 10**6}
    return ConversationService(
        ids=IdRules(),
        book=ConversationBook(most=32, ttl_s=3600),
        folder=ConversationFolder(folder, model="tiny-chat", **(rules | limits)),
        chat=FileWorker() if worker is None else worker,
    )


def commit(kept: ConversationService, conversation: str = "trip-1") -> None:
    kept.commit(conversation, [USER, ANSWER], lambda tokens: [2, len(tokens)])


@pytest.fixture
def kept(generator: Scripted, tmp_path: Path) -> ConversationService:
    made = conversations(tmp_path / "saved")
    generator.conversations = made
    return made


async def test_save_load_list_delete(site: Site, kept: ConversationService) -> None:
    commit(kept)
    body = {"conversation": "trip-1", "title": "Lisbon notes"}
    saved = await site.http.post("/v1/conv_kv/save", json=body)
    assert saved.status_code == 200
    facts = saved.json()
    meta_bytes = facts.pop("meta_bytes")
    assert facts == {
        "status": "saved",
        "id": "trip-1",
        "path": "tiny-chat__trip-1.safetensors",
        "bytes": 64,
        "tokens": 4,
    }
    listed = (await site.http.get("/v1/conv_kv/stats")).json()
    (item,) = listed["items"]
    ts = item.pop("ts")
    assert isinstance(ts, int)
    assert item == {
        "id": "trip-1",
        "title": "Lisbon notes",
        "tokens": 4,
        "size_bytes": 64 + meta_bytes,
        "path": "tiny-chat__trip-1.safetensors",
        "prefix": "hi",
    }
    loaded = await site.http.post("/v1/conv_kv/load", json={"conversation_id": "trip-1"})
    assert (loaded.status_code, loaded.json()) == (
        200,
        {
            "status": "loaded",
            "id": "trip-1",
            "tokens": 4,
            "has_boundary": True,
            "has_hashes": True,
        },
    )
    for word in ("deleted", "not_found"):
        gone = await site.http.delete("/v1/conv_kv/trip-1")
        assert (gone.status_code, gone.json()) == (200, {"status": word, "id": "trip-1"})
    again = await site.http.post("/v1/conv_kv/save", json=body)
    assert again.status_code == 200, "memory is untouched by a delete"


@pytest.mark.parametrize("path", ["save", "load"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="none"),
        pytest.param({"conversation": " "}, id="blank"),
        pytest.param({"conversation": 5}, id="number"),
        pytest.param({"conversation": "x" * 513}, id="too-long"),
    ],
)
async def test_without_an_id(
    site: Site, kept: ConversationService, path: str, body: dict[str, Any]
) -> None:
    refused = await site.http.post(f"/v1/conv_kv/{path}", json=body)
    assert (refused.status_code, list(refused.json())) == (400, ["detail"])


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        pytest.param("save", "conversation not found or no cache in memory", id="memory"),
        pytest.param("load", "conversation not found on disk", id="disk"),
    ],
)
async def test_unknown(site: Site, kept: ConversationService, path: str, detail: str) -> None:
    refused = await site.http.post(f"/v1/conv_kv/{path}", json={"conversation": "trip-9"})
    assert (refused.status_code, refused.json()) == (404, {"detail": detail})


@pytest.mark.parametrize(
    ("limits", "override", "status"),
    [
        pytest.param({"most_bytes": 63}, False, 413, id="over-the-limit"),
        pytest.param({"most_bytes": 63}, True, 200, id="limit-overridden"),
        pytest.param({"disk_usage": lambda _: Usage(100, 91, 9)}, True, 413, id="disk-91-percent"),
    ],
)
async def test_limits(
    site: Site, tmp_path: Path, limits: dict[str, Any], override: bool, status: int
) -> None:
    made = site.generator.conversations = conversations(tmp_path, **limits)
    commit(made)
    body = {"conversation": "trip-1", "override_limit": override}
    answer = await site.http.post("/v1/conv_kv/save", json=body)
    assert answer.status_code == status
    assert (list(answer.json()) == ["detail"]) is (status == 413)
    assert bool(list(tmp_path.iterdir())) is (status == 200)


async def test_a_folder_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = site.generator.conversations = conversations(tmp_path / "file" / "saved")
    commit(made)
    answer = await site.http.post("/v1/conv_kv/save", json={"conversation": "trip-1"})
    assert (answer.status_code, list(answer.json())) == (413, ["detail"])


@pytest.mark.parametrize(
    ("method", "path"),
    [pytest.param("GET", "stats", id="stats"), pytest.param("DELETE", "trip-1", id="delete")],
)
async def test_a_folder_that_cannot_be_read(
    site: Site, tmp_path: Path, method: str, path: str
) -> None:
    (tmp_path / "file").write_text("")
    site.generator.conversations = conversations(tmp_path / "file")
    answer = await site.http.request(method, f"/v1/conv_kv/{path}")
    if method == "DELETE":
        assert answer.json() == {"status": "not_found", "id": "trip-1"}
    else:
        assert (answer.status_code, list(answer.json())) == (500, ["detail"])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(
            ErrorInfo(code="conversation_unreadable", status=400, message="another model"),
            400,
            id="foreign-file",
        ),
        pytest.param(Unavailable("loading").info(), 503, id="worker-loads"),
    ],
)
async def test_what_the_worker_says(
    site: Site, tmp_path: Path, error: ErrorInfo, status: int
) -> None:
    made = conversations(tmp_path)
    commit(made)
    await made.save("trip-1")
    site.generator.conversations = conversations(tmp_path, FileWorker(refusal=error))
    answer = await site.http.post("/v1/conv_kv/load", json={"conversation": "trip-1"})
    assert (answer.status_code, answer.json()) == (status, {"detail": error.message})


@pytest.mark.parametrize(
    "conversation", ["client:10.0.0.1", "../etc/passwd", "a b", "é", "stats", "_default"]
)
async def test_ids_of_any_kind(site: Site, kept: ConversationService, conversation: str) -> None:
    commit(kept, conversation)
    saved = await site.http.post("/v1/conv_kv/save", json={"conversation": conversation})
    assert saved.json()["id"] == conversation
    escaped = "".join(f"%{byte:02X}" for byte in conversation.encode())
    gone = await site.http.delete(f"/v1/conv_kv/{escaped}")
    assert gone.json() == {"status": "deleted", "id": conversation}


async def test_two_ids_that_look_alike_in_a_name_have_files_of_their_own(
    site: Site, kept: ConversationService
) -> None:
    for conversation in ("a:b", "a_b", "a/b"):
        commit(kept, conversation)
        await site.http.post("/v1/conv_kv/save", json={"conversation": conversation})
    items = (await site.http.get("/v1/conv_kv/stats")).json()["items"]
    assert sorted(item["id"] for item in items) == ["a/b", "a:b", "a_b"]


async def test_off(site: Site) -> None:
    for method, path in (
        ("POST", "save"),
        ("POST", "load"),
        ("GET", "stats"),
        ("DELETE", "trip-1"),
    ):
        answer = await site.http.request(method, f"/v1/conv_kv/{path}", json={})
        assert answer.status_code == 501
        assert "cache=conversations" in answer.json()["detail"]


async def test_keys_guard_them(start: Start, kept: ConversationService) -> None:
    site = await start(api_keys=["k"])
    path = "/v1/conv_kv/stats"
    with_key = await site.http.get(path, headers={"Authorization": "Bearer k"})
    assert ((await site.http.get(path)).status_code, with_key.status_code) == (401, 200)


async def test_saves_beside_each_other(site: Site, kept: ConversationService) -> None:
    for name in "abcd":
        commit(kept, name)
    answers = await asyncio.gather(
        *(site.http.post("/v1/conv_kv/save", json={"conversation": name}) for name in "abcd")
    )
    assert [answer.status_code for answer in answers] == [200] * 4
