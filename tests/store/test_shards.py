import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxcel.store.problems import ModelUnusable
from mlxcel.store.shards import INDEX, check

Safetensors = Callable[..., bytes]


def test_every_file_is_looked_at(tmp_path: Path, weights: Safetensors) -> None:
    first, second = (tmp_path / f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    first.write_bytes(weights(("w", "U32", 100), ("scales", "F16", 10)))
    second.write_bytes(weights(("norm", "F32", 4)))
    check(tmp_path)
    second.write_bytes(second.read_bytes()[:-1])
    with pytest.raises(ModelUnusable, match=r"00002-of-00002\.safetensors is cut short"):
        check(tmp_path)


def test_missing_shard_is_named(tmp_path: Path, weights: Safetensors) -> None:
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": names}))
    (tmp_path / names["a"]).write_bytes(weights(("a", "F32", 4)))
    with pytest.raises(ModelUnusable, match=f"weights are missing: {names['b']} "):
        check(tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 20, -1], ids=["empty", "length", "header", "last-byte"])
def test_file_that_was_cut_short_is_named(tmp_path: Path, weights: Safetensors, keep: int) -> None:
    (tmp_path / "model.safetensors").write_bytes(weights(("w", "F32", 400))[:keep])
    with pytest.raises(ModelUnusable, match=r"model\.safetensors is cut short"):
        check(tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x05" + bytes(7) + b"hello, this is no model")
    with pytest.raises(ModelUnusable, match="no safetensors header"):
        check(tmp_path)


def test_weights_of_another_kind_are_named(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelUnusable, match=r"pytorch_model\.bin is of a kind that is not read"):
        check(tmp_path)


def test_broken_index_is_named(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text("{}")
    with pytest.raises(ModelUnusable, match=f"{INDEX} cannot be read"):
        check(tmp_path)
