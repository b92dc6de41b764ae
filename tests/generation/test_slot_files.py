"""Slot files on a real disk: what comes back, what does not, and where a name may lead."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxcel.core.cache import CacheTag
from mlxcel.core.errors import BadRequest, MlxcelError
from mlxcel.generation.identity import Identity, read_identity
from mlxcel.generation.slot_files import SlotFiles
from mlxcel.generation.slot_table import TokenStream
from mlxcel.link.messages import pack_tokens
from tests.tiny.checkpoint import build_tiny_checkpoint

OWN = Identity(model="m" * 64, tokenizer="t" * 64)
TAG = CacheTag(session="ünï", template=bytes(range(32)), tool_choice="mode:auto", boundary=2)
STREAM = TokenStream(tokens=pack_tokens([1, 2, 300]), tag=TAG)


def files(folder: Path, own: Identity = OWN) -> SlotFiles:
    return SlotFiles(folder, lambda: own)


def kept(folder: Path, stream: TokenStream = STREAM) -> Path:
    path = files(folder).place("a.bin")
    files(folder).write(path, stream)
    return path


def read(path: Path, own: Identity = OWN, *, window: int = 0, vocab_size: int = 512) -> TokenStream:
    stream, size = files(path.parent, own).read(path, window=window, vocab_size=vocab_size)
    assert size == path.stat().st_size
    return stream


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(STREAM, id="tagged"),
        pytest.param(TokenStream(tokens=pack_tokens([7])), id="cold"),
        pytest.param(TokenStream(), id="empty"),
        pytest.param(TokenStream(tokens=pack_tokens(range(5000)), tag=TAG), id="long"),
    ],
)
def test_a_stream_comes_back_from_another_object(tmp_path: Path, stream: TokenStream) -> None:
    path = kept(tmp_path / "made", stream)
    assert read(path, vocab_size=5000) == stream
    assert files(tmp_path / "made").write(path, stream) == path.stat().st_size


def test_a_file_is_a_line_of_json_tokens_and_their_digest(tmp_path: Path) -> None:
    data = kept(tmp_path).read_bytes()
    line, _, rest = data.partition(b"\n")
    header = json.loads(line)
    assert {name: header[name] for name in ("magic", "version", "model", "tokenizer", "count")} == {
        "magic": "mlxcel-slot",
        "version": 1,
        "model": OWN.model,
        "tokenizer": OWN.tokenizer,
        "count": 3,
    }
    assert rest[:-32] == b"\1\0\0\0\2\0\0\0\x2c\1\0\0"
    assert rest[-32:] == hashlib.sha256(data[:-32]).digest()


def test_files_and_folder_are_the_owners_alone_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = kept(tmp_path / "made")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_session_beyond_measure_costs_the_tag_not_the_file(tmp_path: Path) -> None:
    path = kept(tmp_path, TokenStream(tokens=STREAM.tokens, tag=CacheTag(session="x" * 70_000)))
    assert read(path) == TokenStream(tokens=STREAM.tokens)


@pytest.mark.parametrize(
    ("window", "fits"), [(0, True), (3, True), (2, False)], ids=["unbounded", "full", "short"]
)
def test_the_window_of_a_slot_bounds_what_is_restored(
    tmp_path: Path, window: int, fits: bool
) -> None:
    path = kept(tmp_path)
    if fits:
        assert read(path, window=window) == STREAM
    else:
        with pytest.raises(BadRequest, match=r"^Unable to restore slot: .* 3 tokens.* 2 tokens"):
            read(path, window=window)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        pytest.param(Identity(model="o", tokenizer=OWN.tokenizer), "another model", id="model"),
        pytest.param(Identity(model=OWN.model, tokenizer="o"), "another tokenizer", id="tokenizer"),
    ],
)
def test_a_file_of_another_model_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, own: Identity, says: str
) -> None:
    with pytest.raises(BadRequest, match=f"^Unable to restore slot: a.bin .*{says}$"):
        read(kept(tmp_path), own)
    assert caplog.messages == [f"a slot is not restored: a.bin was saved with {says}"]


def test_tokens_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"^Unable to restore slot: .* does not have"):
        read(kept(tmp_path), vocab_size=300)
    assert read(kept(tmp_path), vocab_size=301) == STREAM


def test_every_way_to_cut_a_file_short_is_noticed(tmp_path: Path) -> None:
    path = kept(tmp_path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(BadRequest, match=r"^Unable to restore slot: a\.bin "):
            read(path)


def test_every_byte_that_changes_is_noticed(tmp_path: Path) -> None:
    path = kept(tmp_path)
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(BadRequest, match=r"^Unable to restore slot: a\.bin "):
            read(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"null\n",
        b"x" * 100_000,
        b'{"magic":"other","version":1,"model":"","tokenizer":"","count":0}\n',
        b'{"magic":"mlxcel-slot","version":1,"model":"","tokenizer":"","count":-1}\n',
        b'{"magic":"mlxcel-slot","version":2,"model":"","tokenizer":"","count":0}\n',
    ],
    ids=["empty", "line", "null", "noise", "magic", "count", "version"],
)
def test_what_is_no_slot_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    says = r"^Unable to restore slot: a\.bin (is no slot file|has version 2; this server reads 1)$"
    with pytest.raises(BadRequest, match=says):
        read(path)


def test_a_file_that_claims_too_much_is_not_read_into_memory(tmp_path: Path) -> None:
    path = kept(tmp_path)
    line = json.loads(path.read_bytes().partition(b"\n")[0]) | {"count": 2**60}
    path.write_bytes(json.dumps(line).encode() + b"\n")
    with pytest.raises(BadRequest, match="context window"):
        read(path, window=4096)


def test_a_missing_file_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    path = files(tmp_path).place("a.bin")
    with pytest.raises(BadRequest, match=r"^Unable to restore slot: there is no file a\.bin$"):
        read(path)


@pytest.mark.parametrize("name", ["", "..", "../a.bin", "/etc/passwd", "a/b", "a\0", "%2e%2e"])
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest, match=r"^Invalid filename$"):
        files(tmp_path).place(name)


def _link_to_file(root: Path, outside: Path) -> None:
    (root / "a.bin").symlink_to(outside / "secret")


def _link_to_nothing(root: Path, outside: Path) -> None:
    (root / "a.bin").symlink_to(outside / "new")


def _link_over_two(root: Path, outside: Path) -> None:
    (root / "b").symlink_to(outside / "secret")
    (root / "a.bin").symlink_to(root / "b")


def _link_above(root: Path, outside: Path) -> None:
    (root / "a.bin").symlink_to("..")


def _circle(root: Path, outside: Path) -> None:
    (root / "a.bin").symlink_to("a.bin")


def _folder(root: Path, outside: Path) -> None:
    (root / "a.bin").mkdir()


def _pipe(root: Path, outside: Path) -> None:
    os.mkfifo(root / "a.bin")


@pytest.mark.parametrize(
    "lay",
    [_link_to_file, _link_to_nothing, _link_over_two, _link_above, _circle, _folder, _pipe],
    ids=lambda lay: lay.__name__.strip("_"),
)
def test_a_name_that_leads_elsewhere(tmp_path: Path, lay: Callable[[Path, Path], None]) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"untouched")
    lay(root, outside)
    with pytest.raises(BadRequest, match=r"^Invalid filename$"):
        files(root).place("a.bin")
    assert (outside / "secret").read_bytes() == b"untouched"
    assert not (outside / "new").exists()


def test_a_link_that_comes_after_the_look_is_not_followed(tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    root.mkdir()
    path = files(root).place("a.bin")
    kept(tmp_path / "elsewhere").rename(secret)
    before = secret.read_bytes()
    path.symlink_to(secret)
    with pytest.raises(MlxcelError, match="symbolic links") as refused:
        read(path)
    assert refused.value.status == 500
    files(root).write(path, TokenStream())
    assert secret.read_bytes() == before
    assert not path.is_symlink()


def test_a_link_inside_the_folder_and_a_folder_that_is_one_are_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    root = tmp_path / "root"
    (root / "a.bin").symlink_to("b.bin")
    kept(root)
    assert read((root / "b.bin").resolve()) == STREAM
    assert (root / "a.bin").is_symlink()


def test_a_fault_of_the_disk_is_a_500_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = kept(tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MlxcelError, match=r"a\.bin: No space left on device$") as fault:
        files(tmp_path).write(path, TokenStream())
    assert fault.value.status == 500
    assert read(path) == STREAM
    assert list(tmp_path.iterdir()) == [path]
    assert "a.bin: [Errno 28] No space left on device" in caplog.text


def test_a_folder_that_cannot_be_made_is_a_500(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below = files(tmp_path / "file" / "slots")
    with pytest.raises(MlxcelError) as fault:
        below.write(below.place("a.bin"), STREAM)
    assert fault.value.status == 500


def test_identity_is_that_of_config_weights_and_tokenizer(tmp_path: Path) -> None:
    one = build_tiny_checkpoint(tmp_path / "one", layers=1, hidden=16)
    same = build_tiny_checkpoint(tmp_path / "same", layers=1, hidden=16)
    first = read_identity(one, "a")
    assert read_identity(same, "b") == first
    (weights,) = same.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes() + b"\0")
    assert read_identity(same, "b").model != first.model
    (one / "config.json").write_text((one / "config.json").read_text() + " ")
    changed = read_identity(one, "a")
    assert (changed.model != first.model, changed.tokenizer) == (True, first.tokenizer)
    (one / "tokenizer.json").write_text((one / "tokenizer.json").read_text() + " ")
    assert read_identity(one, "a").tokenizer != first.tokenizer


def test_a_model_without_a_folder_is_its_name() -> None:
    assert read_identity(None, "echo") == read_identity(None, "echo") != read_identity(None, "x")
