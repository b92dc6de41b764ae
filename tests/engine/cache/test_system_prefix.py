"""The three files of the system messages: written, replaced, read after a restart, or not used."""

import logging
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from mlxcel.engine.cache.disk.run import Identity
from mlxcel.engine.cache.segment import Segment
from mlxcel.engine.cache.system_prefix import SystemPrefix, token_hash

IDENTITY = Identity(model="m", kv_mode="fp16", adapters="")
SEED = [1, 15, 7, 42]
HASH = "6a931565a8aa579475d6499a470d3e0d3414a6f19d7de42b6226518ff097fd68"
NAME = "tiny-chat.safetensors"


def segment(tokens: int, value: float = 0.5) -> Segment:
    part = mx.full((1, 2, tokens, 4), value, dtype=mx.bfloat16)
    return Segment(((part, part + 1), (part + 2, part + 3)), tokens)


def opened(folder: Path, identity: Identity = IDENTITY) -> SystemPrefix:
    return SystemPrefix(folder, "owner/tiny-chat", identity)


def kept(folder: Path, tokens: list[int] = SEED) -> None:
    prefix = opened(folder)
    prefix.keep(tokens, segment(len(tokens)))
    prefix.close()


def test_hash_of_the_seed() -> None:
    assert token_hash(SEED) == HASH


def test_folder_is_for_its_owner(tmp_path: Path) -> None:
    kept(tmp_path / "kv")
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700


def test_nothing_at_first(tmp_path: Path) -> None:
    prefix = opened(tmp_path / "made")
    assert (tmp_path / "made").is_dir()
    assert prefix.find(SEED) is None
    assert prefix.wanted(SEED)
    assert not prefix.wanted([])
    assert prefix.nbytes == 0


def test_three_files(tmp_path: Path) -> None:
    kept(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        NAME,
        f"{NAME}.hash",
        f"{NAME}.len",
    ]
    assert (tmp_path / f"{NAME}.len").read_text() == "4"
    assert (tmp_path / f"{NAME}.hash").read_text() == HASH


def test_found_at_once_and_after_a_restart(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.keep(SEED, segment(4))
    assert first.find(SEED) is not None
    first.close()
    again = opened(tmp_path)
    found = again.find(SEED)
    assert found is not None
    assert not again.wanted(SEED)
    assert again.nbytes == segment(4).nbytes
    for theirs, ours in zip(found.layers, segment(4).layers, strict=True):
        for one, other in zip(theirs, ours, strict=True):
            assert one.dtype == mx.bfloat16
            assert mx.array_equal(one, other)


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param([1, 15, 7], id="shorter"),
        pytest.param([1, 15, 7, 42, 0], id="longer"),
        pytest.param([1, 15, 7, 43], id="other"),
    ],
)
def test_other_tokens_are_not_found(tmp_path: Path, tokens: list[int]) -> None:
    kept(tmp_path)
    prefix = opened(tmp_path)
    assert prefix.find(tokens) is None
    assert prefix.wanted(tokens)


def test_other_messages_replace_it(tmp_path: Path) -> None:
    kept(tmp_path)
    kept(tmp_path, [5, 6])
    assert (tmp_path / f"{NAME}.hash").read_text() == token_hash([5, 6])
    assert (tmp_path / f"{NAME}.len").read_text() == "2"
    prefix = opened(tmp_path)
    assert prefix.find(SEED) is None
    assert prefix.find([5, 6]) is not None


def test_the_same_again_writes_nothing(tmp_path: Path) -> None:
    kept(tmp_path)
    before = (tmp_path / NAME).stat().st_mtime_ns
    kept(tmp_path)
    assert (tmp_path / NAME).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda f: (f / f"{NAME}.len").unlink(), id="no-length"),
        pytest.param(lambda f: (f / f"{NAME}.len").write_text("four"), id="length-no-number"),
        pytest.param(lambda f: (f / f"{NAME}.len").write_text("5"), id="other-length"),
        pytest.param(lambda f: (f / f"{NAME}.hash").unlink(), id="no-hash"),
        pytest.param(lambda f: (f / f"{NAME}.hash").write_text("0" * 64), id="other-hash"),
        pytest.param(lambda f: (f / NAME).write_bytes((f / NAME).read_bytes()[:-1]), id="cut"),
        pytest.param(lambda f: (f / NAME).write_bytes(b"{}"), id="no-safetensors"),
        pytest.param(lambda f: (f / NAME).unlink(), id="no-kv"),
    ],
)
def test_what_cannot_be_trusted_is_not_used_and_made_anew(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    kept(tmp_path)
    spoil(tmp_path)
    prefix = opened(tmp_path)
    assert prefix.find(SEED) is None
    prefix.close()
    kept(tmp_path)
    assert opened(tmp_path).find(SEED) is not None


@pytest.mark.parametrize(
    "identity",
    [
        pytest.param(Identity(model="other", kv_mode="fp16", adapters=""), id="model"),
        pytest.param(Identity(model="m", kv_mode="int8", adapters=""), id="kv-mode"),
        pytest.param(Identity(model="m", kv_mode="fp16", adapters="a"), id="adapters"),
    ],
)
def test_another_models_is_not_used(tmp_path: Path, identity: Identity) -> None:
    kept(tmp_path)
    assert opened(tmp_path, identity).find(SEED) is None


def test_a_folder_that_cannot_be_made_is_logged_and_memory_still_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        prefix = opened(tmp_path / "file" / "folder")
        prefix.keep(SEED, segment(4))
        prefix.close()
    assert prefix.find(SEED) is not None
    assert "not kept" in caplog.text


def test_a_write_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "folder"
    prefix = opened(folder)
    shutil.rmtree(folder)
    folder.write_text("")
    with caplog.at_level(logging.WARNING):
        prefix.keep(SEED, segment(4))
        prefix.close()
    assert "not kept" in caplog.text
