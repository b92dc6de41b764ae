"""Kept responses in a file, so that they survive a restart.

One thread does all the work, in the order it was asked for: what was put is found by whoever asks
next. Several servers may share a file.
"""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from mlxcel.core.errors import MlxcelError, StartupError
from mlxcel.storage.responses import (
    BrokenChain,
    Item,
    StoredResponse,
    among,
    item_ids,
    packed,
    unpacked,
)
from mlxcel.storage.shelf import Bounds, Clock

log = logging.getLogger(__name__)
T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, id TEXT NOT NULL, used_s REAL NOT NULL, data BLOB NOT NULL,
    UNIQUE (owner, id));
CREATE TABLE IF NOT EXISTS items (
    owner TEXT NOT NULL, item TEXT NOT NULL,
    response INTEGER NOT NULL REFERENCES responses (number) ON DELETE CASCADE,
    PRIMARY KEY (owner, item, response)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_use ON responses (used_s, number);
CREATE INDEX IF NOT EXISTS by_response ON items (response);
"""
VERSION = 1
"""Of the tables."""
BUSY_S = 5.0
"""How long another server that shares the file may hold it."""
ATTEMPTS = 9
"""Files beside one that cannot be used."""
OLDEST = "SELECT number, length(data) FROM responses ORDER BY used_s, number"


class SqliteStore:
    """Close it: what was put may still have to be written."""

    def __init__(self, file: Path, bounds: Bounds, *, clock: Clock = time.time) -> None:
        """Raises StartupError for a place that cannot be written to."""
        self._bounds = bounds
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="responses")
        try:
            self._db = self._thread.submit(_opened, file).result()
        except BaseException:
            self._thread.shutdown()
            raise

    @property
    def is_on(self) -> bool:
        return self._bounds.is_on

    def put(self, response: StoredResponse) -> None:
        if self.is_on:
            self._thread.submit(self._put, response, self._clock()).add_done_callback(_tell)

    async def get(self, owner: str, id: str) -> StoredResponse | None:
        return await self._done(lambda: self._get(owner, id))

    async def delete(self, owner: str, id: str) -> bool:
        return await self._done(lambda: self._delete(owner, id))

    async def chain(self, owner: str, id: str) -> list[StoredResponse]:
        return await self._done(lambda: self._chain(owner, id))

    async def find_items(self, owner: str, ids: Sequence[str]) -> dict[str, Item]:
        return await self._done(lambda: self._find_items(owner, ids))

    def close(self) -> None:
        self._thread.shutdown()
        self._db.close()

    async def _done(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise MlxcelError(f"the stored responses cannot be read: {error}") from error

    def _put(self, response: StoredResponse, now_s: float) -> None:
        owner = response.owner
        with self._db:
            self._db.execute(
                "DELETE FROM responses WHERE owner = ? AND id = ?", (owner, response.id)
            )
            number = self._db.execute(
                "INSERT INTO responses (owner, id, used_s, data) VALUES (?, ?, ?, ?)",
                (owner, response.id, now_s, packed(response)),
            ).lastrowid
            self._db.executemany(
                "INSERT OR IGNORE INTO items VALUES (?, ?, ?)",
                [(owner, item, number) for item in item_ids(response)],
            )
            self._shrink(now_s)

    def _shrink(self, now_s: float) -> None:
        if self._bounds.ttl_s:
            oldest = now_s - self._bounds.ttl_s
            self._db.execute("DELETE FROM responses WHERE used_s < ?", (oldest,))
        totals = "SELECT count(*), total(length(data)) FROM responses"
        entries, size = self._db.execute(totals).fetchone()
        dropped = []
        with closing(self._db.execute(OLDEST)) as rows:
            for number, length in rows:
                if entries <= self._bounds.max_entries and size <= self._bounds.max_bytes:
                    break
                dropped.append((number,))
                entries, size = entries - 1, size - length
        self._db.executemany("DELETE FROM responses WHERE number = ?", dropped)

    def _get(self, owner: str, id: str) -> StoredResponse | None:
        row = self._db.execute(
            "SELECT data FROM responses WHERE owner = ? AND id = ? AND used_s >= ?",
            (owner, id, self._oldest_s()),
        ).fetchone()
        return None if row is None else unpacked(owner, id, row[0])

    def _oldest_s(self) -> float:
        ttl_s = self._bounds.ttl_s
        return self._clock() - ttl_s if ttl_s else float("-inf")

    def _delete(self, owner: str, id: str) -> bool:
        with self._db:
            done = self._db.execute(
                "DELETE FROM responses WHERE owner = ? AND id = ? AND used_s >= ?",
                (owner, id, self._oldest_s()),
            )
        return done.rowcount > 0

    def _chain(self, owner: str, id: str) -> list[StoredResponse]:
        found: list[StoredResponse] = []
        at: str | None = id
        while at is not None:
            response = self._get(owner, at)
            if response is None:
                raise BrokenChain(id, at)
            found.append(response)
            at = response.previous_id
        found.reverse()
        now_s = self._clock()
        with self._db:
            self._db.executemany(
                "UPDATE responses SET used_s = ? WHERE owner = ? AND id = ?",
                [(now_s, owner, response.id) for response in found],
            )
        return found

    def _find_items(self, owner: str, ids: Sequence[str]) -> dict[str, Item]:
        homes: set[str] = set()
        for name in ids:
            row = self._db.execute(
                "SELECT id FROM responses JOIN items ON number = response "
                "WHERE items.owner = ? AND item = ? ORDER BY number DESC LIMIT 1",
                (owner, name),
            ).fetchone()
            homes |= set(row or ())
        return among([self._get(owner, home) for home in homes], ids)


def _opened(file: Path) -> sqlite3.Connection:
    """A file that is damaged, or is something else, is left as it is: it may be worth a look. The
    next name beside it is taken, now and after a restart."""
    for number in range(ATTEMPTS + 1):
        at = file if not number else file.with_name(f"{file.name}.{number}")
        try:
            return _connected(at)
        except OSError as error:
            raise _unusable(at, str(error.strerror)) from error
        except sqlite3.OperationalError as error:
            raise _unusable(at, str(error)) from error
        except sqlite3.DatabaseError as error:
            log.error("%s cannot be used (%s): responses are kept beside it", at, error)
    raise _unusable(file, f"nor can the {ATTEMPTS} files beside it")


def _connected(file: Path) -> sqlite3.Connection:
    # What people said to a model is nobody else's.
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    db = sqlite3.connect(file, timeout=BUSY_S, check_same_thread=False)
    try:
        seen = db.execute("PRAGMA user_version").fetchone()[0]
        if seen not in (0, VERSION) or (not seen and _has_tables(db)):
            raise sqlite3.DatabaseError("it has tables of another program, or of a later version")
        if (fault := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(fault)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _has_tables(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _unusable(file: Path, why: str) -> StartupError:
    return StartupError(f"limits.responses_store.file = {file} cannot be used: {why}")


def _tell(done: "Future[None]") -> None:
    error = done.exception()
    if error is not None:
        log.error("a response could not be stored", exc_info=error)
