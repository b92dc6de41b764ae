"""Whole states and their files: what is written when, found again, and given up."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from mlxcel.core.cache import CacheTag
from mlxcel.engine.cache.counters import Counters
from mlxcel.engine.cache.disk.reader import PATIENCE_S
from mlxcel.engine.cache.disk.tier import DiskTier, Gone, Loss, Run
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.snapshots import SnapshotRules
from mlxcel.engine.cache.state_files import kinds_of, packed_state
from mlxcel.engine.cache.state_spill import StateFetch, StateSpill
from mlxcel.engine.cache.states import State
from mlxcel.engine.cache.states_kept import StateKeeping
from tests.engine.cache.disk_runs import IDENTITY, LONG_S, rules, silent, wait_for
from tests.engine.cache.snapshot_shop import BLOB, Clock, key_for, run, state_of

KEY, TAG = key_for(), CacheTag()
KINDS = kinds_of([ArraysCache(1)])


class Server:
    """A keeping with its tier on a folder."""

    def __init__(
        self, folder: Path, *, capacity: int | None = None, opens: bool = True, **changed: Any
    ) -> None:
        self.clock = Clock()
        self.keeping = StateKeeping(
            SnapshotRules(capacity_bytes=capacity, max_entries=64, ttl_s=0.0),
            Counters(),
            at_boundary=True,
        )
        given = {name: changed.pop(name) for name in ("queue_bytes",) if name in changed}
        self.tier = DiskTier(rules(folder, **changed), IDENTITY, **given)
        self.spill = StateSpill(self.tier, KINDS, clock=self.clock)
        self.spill.open(silent)
        self.keeping.spill = self.spill

    def keep(self, tokens: Sequence[int], origin: str = "completion") -> None:
        self.put(tokens, state_of(tokens), origin)
        self.idle()

    def put(self, tokens: Sequence[int], state: State, origin: str = "completion") -> None:
        self.keeping.store.insert(KEY, tokens, state, origin=origin)
        self.keeping._is_behind = True

    def idle(self) -> None:
        """Until all is written."""
        self.keeping.end_turn(is_idle=True)
        self.settle()

    def settle(self) -> None:
        wait_for(lambda: self.tier.stats()["queue_bytes"] == 0)
        self.keeping.begin_turn()
        self.keeping.check()

    def on_disk(self, tokens: Sequence[int], key: CacheKey = KEY) -> int:
        filed = self.spill.find(key, tokens)
        return 0 if filed is None else filed.length

    def fetched(self, tokens: Sequence[int]) -> int:
        """Tokens that came from disk."""
        fetch = self.keeping.fetch(KEY, TAG, tokens)
        if fetch is None:
            return -1
        fetch.read.exception(LONG_S)
        came = self.keeping.fetched(fetch)
        self.keeping.check()
        return came

    def has_files(self, count: int) -> bool:
        """Files go a moment after they were given up."""
        self.settle()
        wait_for(lambda: self.stats()["files"] == count)
        self.keeping.begin_turn()
        return True

    def stats(self) -> dict[str, Any]:
        return self.spill.stats()

    def close(self) -> None:
        self.keeping.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    made = Server(folder)
    yield made
    made.close()


def the_file(folder: Path) -> Path:
    (found,) = folder.glob("*.safetensors")
    return found


# Writing.


def test_state_is_written_when_there_is_nothing_to_do(server: Server) -> None:
    server.put(run(0, 10), state_of(run(0, 10)))
    server.keeping.end_turn(is_idle=False)
    assert server.stats()["queue_bytes"] == server.stats()["files"] == 0
    server.idle()
    assert server.has_files(1)
    assert server.on_disk(run(0, 11)) == 10


def test_what_is_superseded_before_that_is_not_written(server: Server) -> None:
    server.put(run(0, 10), state_of(run(0, 10)))
    server.keep(run(0, 20))
    assert server.stats()["writes"] == 1
    assert server.on_disk(run(0, 15)) == 0


def test_file_goes_when_a_longer_one_of_its_origin_is_written(server: Server) -> None:
    server.keep(run(0, 10), "boundary")
    server.keep(run(0, 12), "completion")
    server.keep([*run(0, 6), *run(50, 9)], "completion")
    assert server.has_files(3)
    server.keep(run(0, 20), "completion")
    assert server.has_files(3)
    assert [server.on_disk(run(0, n)) for n in (30, 20, 11)] == [20, 10, 10]
    assert server.on_disk([*run(0, 6), *run(50, 30)]) == 15


def test_state_is_written_once(server: Server) -> None:
    for _ in range(3):
        server.keep(run(0, 10))
    assert server.stats()["writes"] == 1


def test_what_an_earlier_server_wrote_is_not_written_again(folder: Path) -> None:
    for _ in range(2):
        server = Server(folder)
        server.keep(run(0, 10))
        server.close()
    assert server.stats()["writes"] == 0
    assert server.has_files(1)


def test_the_rest_is_written_when_the_server_ends(folder: Path) -> None:
    server = Server(folder)
    server.keep(run(0, 10))
    server.put(run(0, 20), state_of(run(0, 20)))
    server.close()
    later = Server(folder)
    assert later.on_disk(run(0, 30)) == 20
    assert later.on_disk(run(0, 15)) == 0, "what it supersedes has gone with it"
    later.close()


def test_state_of_a_class_of_no_fresh_row_is_not_written(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.put(run(0, 5), state_of(run(0, 5), can_be_cut=True))
    server.idle()
    assert server.has_files(0)
    assert "RotatingKVCache" in caplog.text


def test_states_that_do_not_fit_together_are_not_written_in_turn(folder: Path) -> None:
    """One evicts the other's file; memory has both."""
    server = Server(folder)
    server.keep(run(0, 10))
    nbytes = server.stats()["bytes"]
    server.close()
    server = Server(folder, capacity_bytes=int(nbytes * 1.5))
    for start in (100, 200, 100, 200, 300, 100):
        server.keep(run(start, 10))
    assert server.stats()["writes"] == 3
    assert server.stats()["files"] == 1
    assert server.stats()["bytes"] <= nbytes * 1.5
    server.close()


def keep_refused(server: "Server", tokens: Sequence[int]) -> None:
    """While something else fills the queue."""
    server.tier._waiting["another"] = 1 << 60
    server.put(tokens, state_of(tokens))
    server.keeping.end_turn(is_idle=True)
    del server.tier._waiting["another"]
    server.settle()
    assert server.stats()["write_failures"] == 1


def test_refused_state_is_tried_again_with_the_next(folder: Path) -> None:
    server = Server(folder)
    keep_refused(server, run(0, 10))
    server.idle()
    assert server.stats()["files"] == 0, "tried once"
    server.keep(run(100, 10))
    assert server.has_files(2)
    server.close()


def test_disk_that_cannot_be_written_is_no_trouble(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the folder should be")
    server = Server(folder)
    server.keep(run(0, 10))
    assert server.keeping.store.entries == 1
    assert server.fetched(run(0, 20)) == -1
    server.close()


def test_copy_that_cannot_be_made_is_no_trouble(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(run: Run, layers: Any) -> str:
        raise RuntimeError("[metal::malloc] no memory")

    monkeypatch.setattr(server.tier, "write", full)
    server.keep(run(0, 10))
    assert "no memory" in caplog.text
    assert server.keeping.store.entries == 1


# Reading.


def test_later_server_finds_the_longest_beginning(folder: Path) -> None:
    first = Server(folder)
    first.keep(run(0, 10), "boundary")
    first.keep(run(0, 20), "completion")
    first.close()
    server = Server(folder)
    prompts = [run(0, 9), run(0, 10), run(0, 11), run(0, 20), run(0, 21), run(0, 40), run(1, 40)]
    assert [server.on_disk(prompt) for prompt in prompts] == [0, 0, 10, 10, 20, 20, 0]
    assert server.on_disk(run(0, 40), key_for("other")) == 0
    assert server.keeping.length(KEY, TAG, run(0, 40)) == 0
    assert server.fetched(run(0, 40)) == 20
    assert server.keeping.length(KEY, TAG, run(0, 40)) == 20
    assert server.fetched(run(0, 40)) == -1
    found = server.keeping.store.find(KEY, run(0, 40)).state
    assert found is not None
    (blob,) = found.arrays()
    assert bool(mx.all(blob == 20))
    server.close()


def test_origin_comes_back_with_the_state(folder: Path) -> None:
    """So that the next one of the same origin takes its place, in memory and on disk."""
    first = Server(folder)
    first.keep(run(0, 10), "boundary")
    first.close()
    server = Server(folder)
    assert server.fetched(run(0, 15)) == 10
    server.keep(run(0, 20), "boundary")
    assert server.has_files(1)
    assert server.keeping.store.entries == 1
    assert server.on_disk(run(0, 30)) == 20
    server.close()


def test_two_that_wait_for_one_file_keep_one_state(folder: Path) -> None:
    first = Server(folder)
    first.keep(run(0, 10))
    first.close()
    server = Server(folder)
    fetches = [server.keeping.fetch(KEY, TAG, run(0, 11 + n)) for n in range(2)]
    came = []
    for fetch in fetches:
        assert fetch is not None
        fetch.read.exception(LONG_S)
        came.append(server.keeping.fetched(fetch))
    assert came == [10, 0]
    assert server.keeping.store.entries == 1
    server.close()


def test_evicted_state_is_brought_back(folder: Path) -> None:
    server = Server(folder, capacity=BLOB)
    server.keep(run(0, 10))
    server.keep(run(100, 10))
    assert server.keeping.length(KEY, TAG, run(0, 20)) == 0
    assert server.fetched(run(0, 20)) == 10
    assert server.keeping.length(KEY, TAG, run(0, 20)) == 10
    server.close()


def test_state_that_memory_has_no_room_for_is_told_as_brought(folder: Path) -> None:
    first = Server(folder)
    first.keep(run(0, 10))
    first.close()
    server = Server(folder, capacity=BLOB - 1)
    assert server.fetched(run(0, 20)) == 10
    assert server.keeping.store.entries == 0
    server.close()


def test_late_file_is_given_up(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Server(folder)
    first.keep(run(0, 10))
    first.close()
    server = Server(folder)
    fetch = server.keeping.fetch(KEY, TAG, run(0, 20))
    assert fetch is not None
    assert not fetch.is_over(PATIENCE_S - 0.1) or fetch.read.done()
    assert fetch.is_over(PATIENCE_S)
    fetch.read.exception(LONG_S)
    assert isinstance(fetch, StateFetch)
    assert server.keeping.fetched(replace(fetch, read=Future())) == 0
    assert "not read within" in caplog.text
    server.close()


def test_disk_that_does_not_answer_is_not_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Server(folder)
    first.keep(run(0, 10))
    first.close()
    server = Server(folder)
    monkeypatch.setattr(DiskTier, "is_stuck", property(lambda tier: True))
    assert server.keeping.fetch(KEY, TAG, run(0, 20)) is None
    server.close()


# What is not sound.


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-40] ^= 4
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_damaged_file_is_skipped_counted_and_written_anew(folder: Path, damage: Any) -> None:
    first = Server(folder)
    first.keep(run(0, 10))
    first.close()
    server = Server(folder)
    damage(the_file(folder))
    assert server.fetched(run(0, 20)) == 0
    assert server.stats()["unsound"] == 1
    assert server.on_disk(run(0, 20)) == 0
    server.keep(run(0, 10))
    assert server.has_files(1)
    assert server.on_disk(run(0, 20)) == 10
    server.close()


def test_file_of_another_class_is_skipped_counted_and_removed(folder: Path) -> None:
    """Sound by its digest; as a program of another version may have written it."""
    writer = DiskTier(rules(folder), IDENTITY)
    list(writer.open(silent))
    tokens = tuple(run(0, 10))
    window = state_of(tokens, can_be_cut=True)
    writer.write(Run(key=KEY, prefix=(), tokens=tokens), packed_state(window, "boundary"))
    writer.close(LONG_S)
    server = Server(folder)
    assert server.on_disk(run(0, 20)) == 10
    assert server.fetched(run(0, 20)) == 0
    assert server.on_disk(run(0, 20)) == 0
    assert server.stats()["unsound"] == 1
    server.keep(run(0, 10))
    assert server.fetched(run(0, 20)) == -1  # memory has it
    assert server.has_files(1)
    assert server.on_disk(run(0, 20)) == 10
    server.close()


def test_file_that_somebody_removed_is_written_anew(folder: Path) -> None:
    server = Server(folder)
    server.keep(run(0, 10))
    the_file(folder).unlink()
    server.keeping.store.reset()
    assert server.fetched(run(0, 20)) == 0
    server.settle()
    server.keep(run(0, 10))
    assert server.has_files(1)
    assert the_file(folder).exists()
    server.close()


# Forgetting.


def test_reset_empties_memory_and_disk(folder: Path, server: Server) -> None:
    server.keep(run(0, 10))
    server.put(run(0, 20), state_of(run(0, 20)))
    assert server.keeping.reset()[1] == 1  # the longer one has taken its place
    assert server.has_files(0)
    assert server.on_disk(run(0, 30)) == 0
    server.keep(run(0, 10))
    assert server.has_files(1)
    assert server.on_disk(run(0, 30)) == 10


def test_what_is_read_when_the_cache_is_emptied_does_not_come_back(folder: Path) -> None:
    first = Server(folder)
    first.keep(run(0, 10))
    first.close()
    server = Server(folder)
    fetch = server.keeping.fetch(KEY, TAG, run(0, 20))
    assert fetch is not None
    fetch.read.exception(LONG_S)
    server.keeping.reset()
    assert server.keeping.fetched(fetch) == 0
    assert server.keeping.store.entries == 0
    server.close()


def test_least_recently_used_file_goes_for_room(folder: Path) -> None:
    first = Server(folder)
    for start in (0, 100, 200):
        first.keep(run(start, 10))
    most = first.stats()["bytes"]
    used = first.keeping.store.find(KEY, run(0, 20))
    assert used.entry is not None
    first.spill.used(KEY, used.entry.data)
    first.close()
    server = Server(folder, capacity_bytes=most)
    server.keep(run(300, 10))
    assert [server.on_disk(run(start, 20)) for start in (0, 100, 200, 300)] == [10, 0, 10, 10]
    assert server.stats()["evictions"] == 1
    server.close()


def test_what_was_brought_is_the_last_to_go_for_room(folder: Path) -> None:
    first = Server(folder)
    for start in (0, 100, 200):
        first.keep(run(start, 10))
    most = first.stats()["bytes"]
    first.close()
    server = Server(folder, capacity_bytes=most)
    assert server.fetched(run(0, 20)) == 10
    server.keep(run(300, 10))
    assert server.has_files(3)
    assert [server.on_disk(run(start, 20)) for start in (0, 100, 200, 300)] == [10, 0, 10, 10]
    server.close()


def test_state_whose_file_was_lost_is_written_anew_while_memory_has_it(server: Server) -> None:
    """Not so where it was given up for others."""
    server.keep(run(0, 10))
    filed = server.spill.find(KEY, run(0, 20))
    assert filed is not None
    server.tier._arriving.append(Gone(file=filed.file, reason=Loss.VANISHED))
    server.settle()
    server.keep(run(100, 10))
    assert server.stats()["writes"] == 3
    server.tier._arriving.append(Gone(file=filed.file, reason=Loss.ROOM))
    server.settle()
    server.keep(run(200, 10))
    assert server.stats()["writes"] == 4


def test_what_was_refused_is_tried_once_more_at_the_end(folder: Path) -> None:
    server = Server(folder)
    keep_refused(server, run(0, 10))
    server.close()
    later = Server(folder)
    assert later.on_disk(run(0, 20)) == 10
    later.close()
