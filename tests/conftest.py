"""What every test gets: an empty environment of its own, and the models tests run on."""

import gc
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra._internal.core_plugins.file_config_source import FileConfigSource

from mlxcel.config import layers
from mlxcel.worker import blas
from tests.shipped import file_read_once, read_once
from tests.tiny.checkpoint import build_tiny_checkpoint

os.environ.setdefault("CI", "true")
# Compiling the product anew is a quarter of what a server takes to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _keep_to_a_core() -> None:
    """Each of several test processes that share few cores has one of them to itself.

    mlx hands every operation from one thread to another. Where that one is to run on a core that
    is busy with somebody else's work, a token takes 20 ms at times instead of one."""
    place = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not place or not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) <= int(os.environ["PYTEST_XDIST_WORKER_COUNT"]):
        os.sched_setaffinity(0, {cores[int(place) % len(cores)]})


_keep_to_a_core()
# Before any test module loads mlx: all of them add up as the product does, in whatever order.
blas.preload()
ALONE = (Path(__file__).parent / "whole", Path(__file__).parent / "cases")
FOREIGN = ("MLXCEL_", "LLAMA_", "HF_", "HUGGING_FACE_", "AIP_")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What collecting makes stays to the end: the garbage collector need not look through it, now
    or at any test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files of long tests first: in the end no process waits for the other's long one."""
    alone = [item for item in items if item.get_closest_marker("whole")]
    strays = {str(i.path) for i in alone if not any(i.path.is_relative_to(f) for f in ALONE)}
    assert not strays, f"make test looks for `whole` tests in {ALONE} only"
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that nobody has made."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) / "config" for number in itertools.count())


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, _homes: Iterator[Path]) -> None:
    """No test sees the caller's variables, nor the files in the caller's home."""
    for name in os.environ:
        if name.startswith(FOREIGN) and name not in ("MLXCEL_BLAS", "MLXCEL_TEST_STORE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(next(_homes)))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _clean_hydra() -> Iterator[None]:
    """Hydra's state is global: a test that composed leaves none behind."""
    yield
    if "hydra" in sys.modules:
        from hydra.core.global_hydra import GlobalHydra

        GlobalHydra.instance().clear()


@pytest.fixture(scope="session", autouse=True)
def _shipped_files_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "composed", read_once(layers.composed))
        patch.setattr(layers, "layers", read_once(layers.layers))
        patch.setattr(FileConfigSource, "load_config", file_read_once(FileConfigSource.load_config))
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random model that speaks bytes."""
    return build_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "tiny-2l")
