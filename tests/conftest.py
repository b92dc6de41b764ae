"""What every test gets: an empty environment of its own, and the models tests run on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxcel.config import layers
from mlxcel.worker import blas
from tests.shipped import read_once
from tests.tiny.checkpoint import build_tiny_checkpoint

os.environ.setdefault("CI", "true")
# Before any test module loads mlx: all of them add up as the product does, in whatever order.
blas.preload()
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


@pytest.fixture(scope="session", autouse=True)
def _shipped_files_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "composed", read_once(layers.composed))
        patch.setattr(layers, "layers", read_once(layers.layers))
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random model that speaks bytes."""
    return build_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "tiny-2l")
