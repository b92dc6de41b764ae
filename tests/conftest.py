"""What every test gets: an empty environment of its own, and the models tests run on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint

os.environ.setdefault("CI", "true")
FOREIGN = ("MLXCEL_", "LLAMA_", "HF_", "HUGGING_FACE_", "AIP_")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the caller's variables, nor the files in the caller's home."""
    for name in os.environ:
        if name.startswith(FOREIGN) and name not in ("MLXCEL_BLAS", "MLXCEL_TEST_STORE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _clean_hydra() -> Iterator[None]:
    """Hydra's state is global: a test that composed leaves none behind."""
    yield
    import sys

    if "hydra" in sys.modules:
        from hydra.core.global_hydra import GlobalHydra

        GlobalHydra.instance().clear()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random model that speaks bytes."""
    return build_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "tiny-2l")
