"""Runs go to disk and come back to the bit, in this server and the next."""

import json
import os
import stat
from pathlib import Path
from threading import Event

import mlx.core as mx
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from mlxcel.core.errors import StartupError
from mlxcel.engine.cache.disk.tier import (
    DiskTier,
    Gone,
    Loss,
    NotWritten,
    Refusal,
    Unsound,
    Written,
    arrived,
)
from mlxcel.engine.cache.segment import Layers
from tests.engine.cache.disk_runs import (
    IDENTITY,
    LONG_S,
    Clock,
    drained,
    fetched,
    key,
    layers,
    put,
    rules,
    run,
    same,
    silent,
    stored,
    tier,
    wait_for,
)

TYPES = [mx.float16, mx.bfloat16, mx.float32, mx.uint32, mx.uint8, mx.int8]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: str(dtype).removeprefix("mlx.core."))
def test_run_comes_back_to_the_bit(tmp_path: Path, dtype: mx.Dtype) -> None:
    given = layers(5, dtype=dtype)
    with tier(tmp_path) as made:
        name = made.write(run(5), given)
        assert drained(made) == [Written(file=name, run=run(5))]
        back = fetched(made, name)
        assert not isinstance(back, Unsound)
        assert same(back, given)


def test_layers_may_differ_in_number_shape_and_type_of_arrays(tmp_path: Path) -> None:
    packed = (mx.arange(12, dtype=mx.uint32).reshape(1, 1, 4, 3), mx.ones((1, 1, 4, 1)))
    odd = (mx.arange(20, dtype=mx.uint8).reshape(1, 1, 4, 5), mx.zeros((1, 2, 4, 0)))
    given: Layers = (packed, (), odd, (mx.ones((1, 2, 4, 8), dtype=mx.bfloat16),) * 2)
    with tier(tmp_path) as made:
        name = made.write(run(4), given)
        drained(made)
        back = fetched(made, name)
        assert not isinstance(back, Unsound)
        assert same(back, given)


def test_views_into_larger_arrays_are_written_as_they_look(tmp_path: Path) -> None:
    whole = layers(9)
    given = tuple(tuple(part[:, :, 2:7] for part in layer) for layer in whole)
    with tier(tmp_path) as made:
        name = made.write(run(5), given)
        drained(made)
        back = fetched(made, name)
        assert not isinstance(back, Unsound)
        assert same(back, given)


def test_reads_share_no_memory(tmp_path: Path) -> None:
    with tier(tmp_path) as made:
        names = [put(made, run(5, first=first), seed=first) for first in range(4)]
        read = made.read([*names, names[0]]).result(LONG_S)
        assert made.stats()["hits"] == 5
        for seed, one in zip((0, 1, 2, 3, 0), read, strict=True):
            assert not isinstance(one, Unsound)
            assert same(arrived(one).layers, layers(5, seed=seed))


def test_next_server_finds_the_runs_in_order_of_start(tmp_path: Path) -> None:
    runs = [run(7, start=30), run(10), run(20, start=10), run(3, start=10, first=500)]
    with tier(tmp_path) as made:
        for seed, one in enumerate(runs):
            put(made, one, seed=seed)
    again = DiskTier(rules(tmp_path), IDENTITY)
    found = list(again.open(silent))
    assert [one.run.start for one in found] == [0, 10, 10, 30]
    assert {one.run for one in found} == set(runs)
    assert [one.nbytes for one in found] == [(tmp_path / one.file).stat().st_size for one in found]
    for one in found:
        back = fetched(again, one.file)
        assert not isinstance(back, Unsound)
        assert same(back, layers(len(one.run.tokens), seed=runs.index(one.run)))
    again.close(LONG_S)


def test_each_part_of_the_key_survives(tmp_path: Path) -> None:
    whole = key("üser\n\x01", lora=(0.1, -2.5), tool_choice="specific:f", rope="long")
    one = type(run(1))(key=whole, prefix=(), tokens=(1, 2, 2_000_000_000))
    with tier(tmp_path) as made:
        put(made, one)
    assert stored(tmp_path) == [one]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(run(5, session="other"), id="session"),
        pytest.param(run(5, first=1), id="tokens"),
        pytest.param(run(4), id="length"),
        pytest.param(run(3, start=2), id="start"),
    ],
)
def test_runs_that_differ_have_files_that_differ(tmp_path: Path, other: object) -> None:
    with tier(tmp_path) as made:
        assert isinstance(other, type(run(1)))
        assert put(made, run(5)) != put(made, other)


def test_same_run_twice_is_written_once_and_told_twice(tmp_path: Path) -> None:
    with tier(tmp_path) as made:
        name = put(made, run(5), seed=1)
        before = (tmp_path / name).stat().st_ino
        list(made.events())
        assert made.write(run(5), layers(5, seed=2)) == name
        assert list(made.events()) == [Written(file=name, run=run(5))]
    assert (tmp_path / name).stat().st_ino == before
    assert made.stats()["writes"] == 1


def test_same_run_that_still_waits_is_written_once(tmp_path: Path) -> None:
    given = layers(3000)
    with tier(tmp_path) as made:
        (name,) = {made.write(run(3000), given) for _ in range(5)}
        assert set(drained(made)) == {Written(file=name, run=run(3000))}
        assert made.stats()["writes"] == 1


def test_same_run_is_no_work_after_a_restart(tmp_path: Path) -> None:
    with tier(tmp_path) as made:
        name = put(made, run(5))
    with tier(tmp_path) as made:
        assert made.write(run(5), layers(5)) == name
        assert made.stats()["queue_bytes"] == 0
        assert list(made.events()) == [Written(file=name, run=run(5))]


def test_queue_is_bounded_in_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """But one alone may be larger: else the KV of a long prompt could never be written."""
    nbytes = sum(part.nbytes for layer in layers(5) for part in layer)
    may_write = Event()

    def free_bytes(folder: Path) -> int:
        may_write.wait(30)
        return 1 << 40

    with tier(tmp_path, queue_bytes=nbytes - 1, free_bytes=free_bytes) as made:
        for first in range(3):
            made.write(run(5, first=first), layers(5))
        events = list(made.events())
        assert [event.reason for event in events] == [Refusal.QUEUE_FULL] * 2
        assert made.stats()["write_failures"] == 2
        assert made.stats()["queue_bytes"] == nbytes
        assert len(caplog.records) == 1
        may_write.set()
        assert [type(event) for event in drained(made)] == [Written]
    assert len(stored(tmp_path)) == 1


def test_run_larger_than_all_there_is_is_refused(tmp_path: Path) -> None:
    with tier(tmp_path, capacity_bytes=100) as made:
        made.write(run(5), layers(5))
        (event,) = drained(made)
        assert isinstance(event, NotWritten)
        assert event.reason is Refusal.TOO_LARGE


def test_close_writes_what_waits(tmp_path: Path) -> None:
    runs = [run(50, first=first) for first in range(20)]
    with tier(tmp_path) as made:
        for one in runs:
            made.write(one, layers(50))
    assert set(stored(tmp_path)) == set(runs)


def test_close_does_not_wait_longer_than_it_may(tmp_path: Path) -> None:
    made = DiskTier(rules(tmp_path), IDENTITY)
    made.open(silent)
    for first in range(40):
        made.write(run(4000, first=first), layers(4000))
    made.close(0.0)
    events = list(made.events())
    assert len(events) == 40
    lost = [event for event in events if isinstance(event, NotWritten)]
    assert {event.reason for event in lost} == {Refusal.CLOSED}
    assert len(stored(tmp_path)) == 40 - len(lost)
    assert not list(tmp_path.glob(".*"))


def test_dropped_file_is_gone(tmp_path: Path) -> None:
    with tier(tmp_path) as made:
        name = put(made, run(5))
        list(made.events())
        made.drop(name)
        wait_for(lambda: made.stats()["files"] == 0)
        wait_for(lambda: list(made.events()) == [Gone(file=name, reason=Loss.ASKED)])
        assert isinstance(fetched(made, name), Unsound)


def test_dropped_run_can_be_written_again(tmp_path: Path) -> None:
    with tier(tmp_path) as made:
        name = put(made, run(5))
        made.drop(name)
        made.write(run(5), layers(5))
    assert stored(tmp_path) == [run(5)]


def test_reset_removes_the_files_of_this_identity_only(tmp_path: Path) -> None:
    other = type(IDENTITY)(model="other", kv_mode="fp16", adapters="")
    with tier(tmp_path, identity=other) as made:
        put(made, run(5))
    (tmp_path / "notes.txt").write_text("mine")
    with tier(tmp_path) as made:
        put(made, run(5))
        made.write(run(6), layers(6))
        made.reset()
        made.write(run(5), layers(5))
        made.write(run(7), layers(7))
    assert set(stored(tmp_path)) == {run(5), run(7)}
    assert stored(tmp_path, identity=other) == [run(5)]
    assert (tmp_path / "notes.txt").exists()


def test_nobody_else_may_read_folder_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with tier(folder) as made:
        name = put(made, run(5))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_file_is_one_that_safetensors_reads(tmp_path: Path) -> None:
    given = layers(5, dtype=mx.bfloat16)
    with tier(tmp_path) as made:
        name = made.write(run(5, start=3), given)
        drained(made)
    tensors = load_file(tmp_path / name)
    assert tensors["ids"].tolist() == list(range(8))
    assert tensors["layers.2.1"].tobytes() == bytes(memoryview(given[2][1].view(mx.uint16)))
    with safe_open(tmp_path / name, framework="np") as file:
        metadata = file.metadata()
    assert metadata["format"] == "mlxcel-kv"
    assert json.loads(metadata["run"])["sheets"][0][0] == ["bfloat16", [1, 2, 5, 8]]


def test_numbers_are_those_of_the_folder(tmp_path: Path) -> None:
    with tier(tmp_path, clock=Clock()) as made:
        names = [put(made, run(5, first=first)) for first in range(3)]
        fetched(made, names[0])
        assert made.stats() == {
            "path": str(tmp_path),
            "bytes": sum(os.path.getsize(tmp_path / name) for name in names),
            "capacity_bytes": 1 << 30,
            "files": 3,
            "writes": 3,
            "write_failures": 0,
            "reads": 1,
            "hits": 1,
            "unsound": 0,
            "foreign": 0,
            "expired": 0,
            "evictions": 0,
            "queue_bytes": 0,
            "is_writable": True,
        }


def test_unknown_hash_is_named_before_anything_is_touched(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cache\.apc\.hash"):
        DiskTier(rules(tmp_path / "new"), IDENTITY, hash_kind="md5")
    assert not (tmp_path / "new").exists()
