"""What tests of rows beside the prompt cache share."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import msgpack

from mlxcel.core.cache import CacheReport, CacheTag
from mlxcel.engine.cache.columns import ColumnKeeping
from mlxcel.link.messages import Ask, Question, Submit
from tests.engine.driver import Driver, submit

PROMPT = [1 + (7 * i) % 90 for i in range(150)]
TAG = CacheTag()
BLOCK = 32 * 2 * 2 * 16 * 4
"""Bytes of a block of the KV budget: 32 tokens of one of two layers."""
TOKEN = BLOCK // 32 * 2
"""Of all KV of one token."""


def report(driver: Driver, name: str) -> CacheReport:
    found = driver.finish(name).timings.cache
    assert found is not None
    return found


def reused(driver: Driver, name: str) -> int:
    return report(driver, name).reused


def keeping(driver: Driver) -> ColumnKeeping:
    found = driver.worker._cache.keeping
    assert isinstance(found, ColumnKeeping)
    return found


def stats(driver: Driver) -> dict[str, Any]:
    return driver.worker._cache.stats(driver.worker._answers._pool())


def ask(driver: Driver, question: Question) -> dict[str, Any]:
    driver.run(Ask(id=str(len(driver.frames)), question=question))
    return [reply for frame in driver.frames for reply in frame.replies][-1].value


def until(driver: Driver, is_so: Callable[[], bool]) -> None:
    for _ in range(500):
        if is_so():
            return
        driver.tick()
    raise AssertionError("it never came to that")


def assert_cold(driver: Driver, request: Submit, prompt: list[int], **options: Any) -> None:
    """It said what it says where there is no cache."""
    cold = submit("cold", prompt, options.pop("length", 12), **options)
    told = _said(driver.model.folder, msgpack.encode(cold))
    for choice in range(request.choices):
        assert driver.tokens(request.id, choice) == told[choice], choice


@cache
def _said(folder: Path, request: bytes) -> list[list[int]]:
    """What is said of each choice; once for all tests."""
    driver, cold = _plain(folder), msgpack.decode(request, type=Submit)
    driver.frames.clear()
    driver.run(cold)
    return [driver.tokens("cold", choice) for choice in range(cold.choices)]


@cache
def _plain(folder: Path) -> Driver:
    return Driver(folder, cache={"prompt": {"enabled": False}})


def no_memory(*args: object) -> None:
    """In place of what makes arrays."""
    raise RuntimeError("[malloc] Unable to allocate 99 bytes.")
