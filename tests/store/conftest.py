"""Model folders that are well formed and hold next to nothing."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from mlxcel.store.resolve import Store

CONFIG = {
    "model_type": "llama",
    "vocab_size": 264,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
    "eos_token_id": 1,
}


def safetensors(*tensors: tuple[str, str, int]) -> bytes:
    """A file of (name, dtype, bytes) tensors, all zero."""
    header, end = {}, 0
    for name, dtype, size in tensors:
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


@pytest.fixture
def weights() -> Callable[..., bytes]:
    return safetensors


@pytest.fixture
def make_model() -> Callable[..., Path]:
    """Write a model folder; keyword arguments go over the config."""

    def make(folder: Path, **config: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
        (folder / "model.safetensors").write_bytes(safetensors(("w", "BF16", 64)))
        return folder

    return make


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, an empty hub cache, and an empty working folder."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    # Tests elsewhere forbid the hub; here a stand-in on this machine plays it.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return Store(root=tmp_path / "store", default_org="mlx-community", revision="main")


@pytest.fixture
def hub_cache(tmp_path: Path) -> Callable[[str, Path], Path]:
    """Put a folder into the hub's cache as a download would have, under the revision main."""

    def put(repo: str, folder: Path) -> Path:
        root = tmp_path / "hub" / f"models--{repo.replace('/', '--')}"
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text("c" * 40)
        return Path(shutil.copytree(folder, root / "snapshots" / ("c" * 40)))

    return put
