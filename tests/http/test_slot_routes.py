"""POST /slots/{id} over a real server and a real folder: the failure table row by row, in the
order in which the checks come."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from mlxcel.core.cache import CacheTag
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.status import State, WorkerStats, WorkerStatus
from mlxcel.generation.slot_table import SlotTable
from mlxcel.generation.slots import Slots
from mlxcel.link.messages import RowStarted, Submit, Warm, pack_tokens
from mlxcel.text.tokenizer import byte_text_model
from tests.http.site import INFO, Scripted, Site, Start

pytestmark = pytest.mark.asyncio
SLOTS = 3
TAG = CacheTag(session="me")
NAME = {"filename": "a.bin"}


class Served(Scripted):
    """With slots whose files lie in `folder`."""

    def __init__(self, folder: Path | None, *, name: str = "tiny") -> None:
        super().__init__()
        self.stats = WorkerStats(slots=SLOTS)
        self.is_known = True
        self.warmed: list[Warm] = []
        self.table = SlotTable(lambda: SLOTS)
        self.slots = Slots.of(
            self.table,
            chat=self,
            text=byte_text_model(),
            folder=None if folder is None else str(folder),
            model=None,
            name=name,
        )

    def status(self) -> WorkerStatus:
        model = INFO if self.is_known else None
        return WorkerStatus(name="chat", state=self.state, stats=self.stats, model=model)

    def warm(self, message: Warm, /) -> None:
        self.warmed.append(message)

    def serve(self, request: str, count: int) -> None:
        submit = Submit(
            id=request,
            tokens=pack_tokens(range(count)),
            sampling=SamplingParams(),
            max_tokens=9,
            eos_ids=(),
            cache=TAG,
        )
        self.table.took(request, submit)
        self.table.heard(RowStarted(request, 0.0, 0.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "slots"


@pytest.fixture
def served(folder: Path) -> Served:
    return Served(folder)


@pytest_asyncio.fixture
async def open_site(start: Start, served: Served) -> Site:
    return await start(generate=served)


async def act(site: Site, slot: object, action: str | None, body: Any = None) -> httpx.Response:
    params = {} if action is None else {"action": action}
    content = None if body is None else json.dumps(body)
    return await site.http.post(f"/slots/{slot}", params=params, content=content)


def failure(response: httpx.Response) -> tuple[int, str]:
    """The status and the message of an error in the envelope of these routes."""
    error = response.json()["error"]
    assert set(error) == {"code", "message", "type"}
    assert error["code"] == response.status_code
    return response.status_code, error["message"]


async def test_save_erase_and_restore(open_site: Site, served: Served, folder: Path) -> None:
    served.serve("r1", 120)
    served.table.left("r1")
    saved = await act(open_site, 0, "save", NAME)
    size = (folder / "a.bin").stat().st_size
    took = saved.json()["timings"]["save_ms"]
    assert saved.json() == {
        "id_slot": 0,
        "filename": "a.bin",
        "n_saved": 120,
        "n_written": size,
        "timings": {"save_ms": took},
    }
    assert took > 0
    erased = await act(open_site, 0, "erase")
    assert (erased.status_code, erased.json()) == (200, {"id_slot": 0, "n_erased": 120})
    assert (await act(open_site, 0, "erase")).json()["n_erased"] == 0
    restored = await act(open_site, "2x", "restore", NAME)
    took = restored.json()["timings"]["restore_ms"]
    assert restored.json() == {
        "id_slot": 2,
        "filename": "a.bin",
        "n_restored": 120,
        "n_read": size,
        "timings": {"restore_ms": took},
    }
    assert took > 0
    assert served.warmed == [Warm(tokens=pack_tokens(range(120)), tag=TAG)]


async def test_a_file_is_restored_by_the_next_server(
    open_site: Site, served: Served, folder: Path, start: Start
) -> None:
    served.serve("r1", 5)
    served.table.left("r1")
    await act(open_site, 0, "save", NAME)
    next_site = await start(generate=Served(folder))
    assert (await act(next_site, 1, "restore", NAME)).json()["n_restored"] == 5
    assert (await act(next_site, 1, "erase")).json()["n_erased"] == 5


@pytest.mark.parametrize("action", ["save", "restore", "erase", "nonsense"])
@pytest.mark.parametrize("slot", ["0", "x"])
async def test_without_a_folder_there_is_nothing_to_do(
    start: Start, action: str, slot: str
) -> None:
    site = await start(generate=Served(None))
    response = await act(site, slot, action, {})
    status, message = failure(response)
    assert (status, response.json()["error"]["type"]) == (501, "not_supported_error")
    assert "--slot-save-path" in message


@pytest.mark.parametrize("slot", ["x", "-1", str(SLOTS), "9" * 30, "%2e%2e", "x2"])
async def test_no_such_slot(open_site: Site, slot: str) -> None:
    response = await act(open_site, slot, "nonsense", {})
    assert failure(response) == (400, "Invalid slot ID")
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("action", [None, "", "nonsense", "SAVE"])
async def test_no_such_action(open_site: Site, served: Served, action: str | None) -> None:
    served.serve("r1", 1)
    assert failure(await act(open_site, 0, action, {})) == (400, "Invalid action")


@pytest.mark.parametrize("action", ["save", "restore"])
@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        [],
        {"filename": None},
        {"filename": 7},
        {"filename": ""},
        {"filename": "../a.bin"},
        {"filename": "/etc/passwd"},
        {"filename": "sub/a.bin"},
        {"filename": "..%2fa"},
        {"filename": "a\u0000b"},
        {"filename": "\ud800"},
        {"filename": "out"},
        {"filename": "nowhere"},
    ],
    ids=repr,
)
async def test_no_file_name_comes_before_a_busy_slot(
    open_site: Site, served: Served, folder: Path, action: str, body: Any
) -> None:
    folder.mkdir()
    secret = folder.parent / "secret"
    secret.write_text("untouched")
    (folder / "out").symlink_to(secret)
    (folder / "nowhere").symlink_to(folder.parent / "new")
    served.serve("r1", 1)
    assert failure(await act(open_site, 0, action, body)) == (400, "Invalid filename")
    assert secret.read_text() == "untouched"
    assert not (folder.parent / "new").exists()


async def test_the_media_type_does_not_matter_but_json_does(open_site: Site) -> None:
    url = "/slots/0?action=save"
    plain = await open_site.http.post(url, content=b'{"filename": "a.bin"}')
    assert (plain.status_code, plain.json()["n_saved"]) == (200, 0)
    broken = await open_site.http.post(url, content=b'{"filename": "a.bin"')
    assert failure(broken) == (400, "Invalid filename")


@pytest.mark.parametrize("action", ["save", "restore", "erase"])
async def test_a_busy_slot_comes_before_a_missing_file(
    open_site: Site, served: Served, action: str
) -> None:
    served.serve("r1", 1)
    response = await act(open_site, 0, action, NAME)
    assert failure(response) == (503, "Requested slot is processing")
    assert response.json()["error"]["type"] == "unavailable_error"
    served.table.left("r1")
    afterwards = await act(open_site, 0, action, NAME)
    assert afterwards.status_code == (400 if action == "restore" else 200)


async def test_what_cannot_be_restored(
    open_site: Site, served: Served, folder: Path, start: Start
) -> None:
    missing = await act(open_site, 0, "restore", NAME)
    assert failure(missing) == (400, "Unable to restore slot: there is no file a.bin")
    served.serve("r1", INFO.context_window + 1)
    served.table.left("r1")
    await act(open_site, 0, "save", NAME)
    status, message = failure(await act(open_site, 0, "restore", NAME))
    assert status == 400
    assert message.startswith("Unable to restore slot: ")
    assert "512 tokens" in message
    other = await start(generate=Served(folder, name="another"))
    status, message = failure(await act(other, 0, "restore", NAME))
    assert (status, message) == (400, "Unable to restore slot: a.bin was saved with another model")


async def test_a_fault_of_the_disk_is_a_500(open_site: Site, folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    response = await act(open_site, 0, "save", NAME)
    status, message = failure(response)
    assert (status, response.json()["error"]["type"]) == (500, "server_error")
    assert "a.bin" in message
    assert str(folder) not in message


async def test_before_the_model_is_there(open_site: Site, served: Served) -> None:
    served.state, served.is_known = State.LOADING, False
    response = await act(open_site, 0, "save", NAME)
    assert failure(response) == (503, "the chat worker is loading; retry later")


async def test_a_key_is_needed_and_asked_for_as_everywhere(start: Start, served: Served) -> None:
    site = await start(generate=served, api_keys=["k"])
    response = await act(site, 0, "erase")
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "invalid_api_key"
    response = await site.http.post("/slots/0?action=erase", headers={"X-Api-Key": "k"})
    assert response.status_code == 200


async def test_only_post_acts_on_a_slot(open_site: Site) -> None:
    assert (await open_site.http.get("/slots/0?action=erase")).status_code == 405
    assert (await open_site.http.post("/slots/0/1?action=erase")).status_code == 404
