"""A file of responses: it survives, is private, and nothing that is found there is destroyed."""

import asyncio
import logging
import sqlite3
import stat
from pathlib import Path

import pytest

from mlxcel.core.errors import MlxcelError, StartupError
from mlxcel.storage.open import open_store
from mlxcel.storage.responses import MemoryStore
from mlxcel.storage.shelf import Bounds
from mlxcel.storage.sqlite import SqliteStore
from tests.storage.keeping import WIDE, response

pytestmark = pytest.mark.asyncio


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept.sqlite"


async def test_it_survives_a_restart(file: Path) -> None:
    store = SqliteStore(file, WIDE)
    store.put(response("r1"))
    store.put(response("r2", "r1"))
    store.close()  # at once: what was put is written first
    again = SqliteStore(file, WIDE)
    assert [one.id for one in await again.chain("o", "r2")] == ["r1", "r2"]
    assert set(await again.find_items("o", ["r1-in"])) == {"r1-in"}
    again.close()


async def test_smaller_limits_hold_from_the_next_response_on(file: Path) -> None:
    store = SqliteStore(file, WIDE)
    for id in ("r1", "r2", "r3"):
        store.put(response(id))
    store.close()
    again = SqliteStore(file, Bounds(max_entries=2, max_bytes=1_000_000, ttl_s=0))
    again.put(response("r4"))
    kept = [id for id in ("r1", "r2", "r3", "r4") if await again.get("o", id) is not None]
    again.close()
    assert kept == ["r3", "r4"]


async def test_nobody_else_may_read_it(file: Path) -> None:
    store = SqliteStore(file, WIDE)
    store.put(response("r1"))
    await store.get("o", "r1")
    found = list(file.parent.iterdir())
    assert len(found) > 1  # what is not in the file yet stands in a log beside it
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    store.close()


def garbage(file: Path) -> None:
    file.write_bytes(b"no database at all\n" * 100)


def foreign(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE responses (id)")
    db.close()


def damaged(file: Path) -> None:
    store = SqliteStore(file, WIDE)
    for number in range(200):
        store.put(response(f"r{number}"))
    store.close()
    data = bytearray(file.read_bytes())
    data[4096 : len(data) // 2] = b"\xff" * (len(data) // 2 - 4096)
    file.write_bytes(data)


@pytest.mark.parametrize("spoil", [garbage, foreign, damaged])
async def test_a_file_that_cannot_be_used_is_left_alone(
    file: Path, spoil: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(spoil)
    spoil(file)
    before = file.read_bytes()
    with caplog.at_level(logging.ERROR):
        store = SqliteStore(file, WIDE)
    assert str(file) in caplog.text
    store.put(response("new"))
    store.close()
    assert file.read_bytes() == before
    again = SqliteStore(file, WIDE)
    assert await again.get("o", "new") is not None
    again.close()


async def test_a_place_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"responses_store\.file = .*nowhere.* cannot be used"):
        SqliteStore(tmp_path / "nowhere" / "kept.sqlite", WIDE)
    with pytest.raises(StartupError, match="cannot be used"):
        SqliteStore(tmp_path, WIDE)


async def test_two_servers_share_a_file(file: Path) -> None:
    one, other = SqliteStore(file, WIDE), SqliteStore(file, WIDE)
    for number in range(20):
        (one, other)[number % 2].put(response(f"r{number}"))
    found = await asyncio.gather(*(one.get("o", f"r{number}") for number in range(0, 20, 2)))
    assert None not in found
    await other.get("o", "r1")
    assert await one.get("o", "r19") is not None
    one.close()
    other.close()


async def test_a_fault_is_told(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SqliteStore(file, WIDE)
    with sqlite3.connect(file) as db:
        db.execute("DROP TABLE items")
        db.execute("DROP TABLE responses")
    db.close()
    store.put(response("r1"))
    with pytest.raises(MlxcelError, match="cannot be read"):
        await store.get("o", "r1")
    assert "could not be stored" in caplog.text
    store.close()


@pytest.mark.parametrize("entries", [0, 5])
async def test_where_they_are_kept(file: Path, entries: int) -> None:
    bounds = Bounds(max_entries=entries, max_bytes=1000, ttl_s=0)
    assert isinstance(open_store(bounds, None), MemoryStore)
    store = open_store(bounds, file)
    assert isinstance(store, SqliteStore if entries else MemoryStore)
    store.close()
    assert file.exists() is bool(entries)
