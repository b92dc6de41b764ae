"""The KV of one conversation in one file: round trip, and everything that is not its own."""

import stat
from pathlib import Path

import mlx.core as mx
import pytest

from mlxcel.engine.cache.conversation_files import (
    ConversationNotWritten,
    ConversationUnreadable,
    read,
    write,
)
from mlxcel.engine.cache.disk.run import Identity
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.segment import Layers

IDENTITY = Identity(model="m", kv_mode="fp16", adapters="")
KEY = CacheKey(
    session="conv:trip-1",
    lora=(1.0,),
    template=b"t" * 32,
    tool_choice="mode:auto",
    tools=b"o" * 32,
    media=bytes(32),
)
TOKENS = (1, 15, 7, 42)


def layers(dtype: mx.Dtype = mx.bfloat16) -> Layers:
    part = mx.arange(32).reshape(1, 2, 4, 4).astype(dtype)
    return ((part, part + 1), (part + 2, part + 3))


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32, mx.uint32], ids=str)
def test_what_was_written_is_read(tmp_path: Path, dtype: mx.Dtype) -> None:
    path = tmp_path / "kv.safetensors"
    size = write(path, TOKENS, KEY, layers(dtype), IDENTITY)
    tokens, key, segment = read(path, IDENTITY)
    assert (tokens, key, segment.tokens) == (TOKENS, KEY, 4)
    assert size == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for theirs, ours in zip(segment.layers, layers(dtype), strict=True):
        for one, other in zip(theirs, ours, strict=True):
            assert one.dtype == dtype
            assert mx.array_equal(one, other)


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        pytest.param(
            Identity(model="other", kv_mode="fp16", adapters=""), "another model", id="model"
        ),
        pytest.param(
            Identity(model="m", kv_mode="int8", adapters=""),
            r"KV mode is fp16, the server's int8 \(cache.kv.mode\)",
            id="kv-mode",
        ),
        pytest.param(
            Identity(model="m", kv_mode="fp16", adapters="a"), "LoRA adapters", id="adapters"
        ),
    ],
)
def test_a_foreign_file_says_what_differs(tmp_path: Path, identity: Identity, why: str) -> None:
    path = tmp_path / "kv.safetensors"
    write(path, TOKENS, KEY, layers(), IDENTITY)
    with pytest.raises(ConversationUnreadable, match=why) as refused:
        read(path, identity)
    assert refused.value.status == 400


@pytest.mark.parametrize("sevenths", range(7))
def test_a_file_cut_short(tmp_path: Path, sevenths: int) -> None:
    path = tmp_path / "kv.safetensors"
    size = write(path, TOKENS, KEY, layers(), IDENTITY)
    path.write_bytes(path.read_bytes()[: size * sevenths // 7])
    with pytest.raises(ConversationUnreadable, match=r"kv\.safetensors cannot be loaded"):
        read(path, IDENTITY)


def test_a_flipped_bit(tmp_path: Path) -> None:
    path = tmp_path / "kv.safetensors"
    write(path, TOKENS, KEY, layers(), IDENTITY)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ConversationUnreadable, match="digest"):
        read(path, IDENTITY)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConversationUnreadable, match="No such file"):
        read(tmp_path / "none.safetensors", IDENTITY)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConversationNotWritten, match="cannot be written") as refused:
        write(tmp_path / "none" / "kv.safetensors", TOKENS, KEY, layers(), IDENTITY)
    assert refused.value.status == 413
