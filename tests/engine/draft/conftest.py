"""A drafter for the tiny model."""

from pathlib import Path

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With other weights and another width, and the same tokens."""
    folder = tmp_path_factory.mktemp("drafter") / "other"
    return build_tiny_checkpoint(folder, seed=9, hidden=32, heads=2, kv_heads=1)
