"""A drafter for the tiny model."""

from pathlib import Path
from typing import cast

import mlx.core as mx
import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With other weights and another width, and the same tokens."""
    folder = tmp_path_factory.mktemp("drafter") / "other"
    return build_tiny_checkpoint(folder, seed=9, hidden=32, heads=2, kv_heads=1)


@pytest.fixture(scope="session")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With weights near those of the tiny model: its odds have about two thirds in common."""
    folder = build_tiny_checkpoint(tmp_path_factory.mktemp("drafter") / "near")
    file = folder / "model.safetensors"
    key = mx.random.key(1)
    moved = {}
    for name, weight in sorted(cast(dict[str, mx.array], mx.load(str(file))).items()):
        key, own = mx.random.split(key)
        moved[name] = weight + 0.1 * mx.std(weight) * mx.random.normal(weight.shape, key=own)
    mx.save_safetensors(str(file), moved)
    return folder
