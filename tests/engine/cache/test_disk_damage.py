"""What is not as it was written, or not ours, is skipped and counted, and never served."""

import json
import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.engine.cache.disk.files import glance
from mlxcel.engine.cache.disk.head import NotOurs, NotSound, parsed
from mlxcel.engine.cache.disk.run import file_name
from mlxcel.engine.cache.disk.tier import DiskTier, Gone, Identity, Loss, Unsound
from tests.engine.cache.disk_runs import (
    IDENTITY,
    LONG_S,
    fetched,
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

FOREIGN = [
    pytest.param(replace(IDENTITY, model="other"), id="model"),
    pytest.param(replace(IDENTITY, kv_mode="int8"), id="kv-mode"),
    pytest.param(replace(IDENTITY, adapters="a.safetensors"), id="adapters"),
]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A file of 5 tokens that continue 3 others."""
    with tier(tmp_path) as made:
        return tmp_path / put(made, run(5, start=3))


def opened(folder: Path) -> tuple[list[object], dict[str, int]]:
    """Runs a new server finds, and its numbers."""
    made = DiskTier(rules(folder), IDENTITY)
    found: list[object] = [one.run for one in made.open(silent)]
    made.close(LONG_S)
    return found, made.stats()


@pytest.mark.parametrize("seventh", range(7))
def test_truncated_file_is_skipped_counted_and_removed(
    written: Path, seventh: int, caplog: pytest.LogCaptureFixture
) -> None:
    os.truncate(written, written.stat().st_size * seventh // 7)
    found, stats = opened(written.parent)
    assert found == []
    assert (stats["unsound"], stats["files"]) == (1, 0)
    assert not written.exists()
    assert written.name in caplog.text


@pytest.mark.parametrize("seventh", range(7))
def test_file_truncated_after_the_start_is_not_served(written: Path, seventh: int) -> None:
    with tier(written.parent) as made:
        os.truncate(written, written.stat().st_size * seventh // 7)
        read = fetched(made, written.name)
        assert isinstance(read, Unsound)
        assert read.file == written.name
        wait_for(lambda: not written.exists())
        wait_for(lambda: Gone(file=written.name, reason=Loss.UNSOUND) in list(made.events()))
        assert made.stats()["unsound"] == 1
        assert made.stats()["hits"] == 0


def test_file_with_bytes_behind_its_end_is_skipped(written: Path) -> None:
    with written.open("ab") as file:
        file.write(b"\0")
    assert opened(written.parent)[0] == []


def test_no_flipped_bit_of_the_header_or_the_ids_is_believed(written: Path) -> None:
    """Every byte before the arrays, a bit of it chosen by its place."""
    sound = written.read_bytes()
    head, ids = glance(written)
    begin = len(sound) - head.data_bytes
    assert begin > 1000
    for place in range(begin):
        flipped = bytearray(sound)
        flipped[place] ^= 1 << (place % 8)
        written.write_bytes(flipped)
        with pytest.raises((NotSound, NotOurs)):
            glance(written)
    written.write_bytes(sound)
    assert glance(written) == (head, ids)


@pytest.mark.parametrize("part", [0.0, 0.31, 0.77, 1.0], ids=["first", "early", "late", "last"])
def test_flipped_bit_of_the_arrays_is_found_when_they_are_read(written: Path, part: float) -> None:
    sound = written.read_bytes()
    begin = len(sound) - glance(written)[0].data_bytes
    place = begin + int(part * (len(sound) - 1 - begin))
    written.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
    found, _ = opened(written.parent)
    assert found == [run(5, start=3)]
    with tier(written.parent) as made:
        assert isinstance(fetched(made, written.name), Unsound)
    assert not written.exists()


@pytest.mark.parametrize("identity", FOREIGN)
def test_file_of_another_identity_is_left_alone(tmp_path: Path, identity: Identity) -> None:
    with tier(tmp_path, identity=identity) as made:
        name = put(made, run(5))
    found, stats = opened(tmp_path)
    assert found == []
    assert (stats["foreign"], stats["unsound"], stats["files"]) == (1, 0, 0)
    assert (tmp_path / name).exists()
    assert stored(tmp_path, identity=identity) == [run(5)]


@pytest.mark.parametrize("identity", FOREIGN)
def test_file_of_another_identity_under_a_name_of_ours_is_left_alone(
    tmp_path: Path, identity: Identity
) -> None:
    with tier(tmp_path, identity=identity) as made:
        name = put(made, run(5))
    ours = tmp_path / file_name(run(5), IDENTITY.mark("sha256"), "sha256")
    (tmp_path / name).rename(ours)
    found, stats = opened(tmp_path)
    assert found == []
    assert (stats["foreign"], stats["unsound"]) == (1, 0)
    assert ours.exists()
    with tier(tmp_path) as made:
        assert isinstance(fetched(made, ours.name), Unsound)
    assert ours.exists()


def test_file_of_another_version_is_left_alone(written: Path) -> None:
    raw = written.read_bytes()
    assert raw.count(b'"version":"1"') == 1
    written.write_bytes(raw.replace(b'"version":"1"', b'"version":"2"'))
    found, stats = opened(written.parent)
    assert found == []
    assert (stats["foreign"], stats["unsound"]) == (1, 0)
    assert written.exists()


def test_file_under_the_name_of_another_run_is_not_served(tmp_path: Path) -> None:
    """Also not to another session, which is in the name as well."""
    with tier(tmp_path) as made:
        secret = put(made, run(5, session="alice"))
        name = put(made, run(5, session="bob"))
        shutil.copy(tmp_path / secret, tmp_path / name)
        assert isinstance(fetched(made, name), Unsound)
    assert stored(tmp_path) == [run(5, session="alice")]


def test_other_safetensors_files_are_counted_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.kv.safetensors").write_bytes(b"anything")
    (tmp_path / "readme.txt").write_bytes(b"anything")
    found, stats = opened(tmp_path)
    assert found == []
    assert stats["foreign"] == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_folder_under_the_name_of_a_file_hurts_nobody(tmp_path: Path) -> None:
    (tmp_path / file_name(run(5), IDENTITY.mark("sha256"), "sha256")).mkdir()
    assert opened(tmp_path)[0] == []


def test_sound_runs_beside_a_damaged_one_are_served(written: Path) -> None:
    with tier(written.parent) as made:
        other = put(made, run(4))
        written.write_bytes(b"")
        bad, good = made.read([written.name, other]).result(LONG_S)
        assert isinstance(bad, Unsound)
        assert not isinstance(good, Unsound)
        assert made.stats()["reads"] == 2
        assert made.stats()["hits"] == 1


def test_vanished_file_is_a_miss_and_not_unsound(written: Path) -> None:
    with tier(written.parent) as made:
        written.unlink()
        assert isinstance(fetched(made, written.name), Unsound)
        wait_for(lambda: Gone(file=written.name, reason=Loss.VANISHED) in list(made.events()))
        stats = made.stats()
        assert (stats["reads"], stats["hits"], stats["unsound"], stats["files"]) == (1, 0, 0, 0)
        put(made, run(5, start=3))
        back = fetched(made, written.name)
        assert not isinstance(back, Unsound)
        assert same(back, layers(5))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_that_is_refused(raw: bytes) -> None:
    with pytest.raises((NotSound, NotOurs)):
        parsed(raw)


def test_deeply_nested_header_is_refused() -> None:
    with pytest.raises(NotSound):
        parsed(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_any_json_as_run_is_refused(value: object) -> None:
    metadata = {"format": "mlxcel-kv", "version": "1", "run": json.dumps(value), "data": ""}
    with pytest.raises(NotSound):
        parsed(json.dumps({"__metadata__": metadata}).encode())


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**63, 2**64 - 1])
def test_no_length_of_a_header_takes_memory_or_time(written: Path, length: int) -> None:
    raw = written.read_bytes()
    written.write_bytes(struct.pack("<Q", length) + raw[8:])
    with pytest.raises(NotSound):
        glance(written)
