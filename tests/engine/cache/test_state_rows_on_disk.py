"""Whole states of rows in files, through the worker: a server that ends and one that comes after
it on the same folder, and that nobody can tell from the answer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheReport, CacheStatus, CacheTag, Source
from mlxcel.engine.cache.states_kept import StateKeeping
from mlxcel.link.messages import Ask, Question
from tests.engine.driver import Driver, submit
from tests.engine.families_driven import driven, said_cold
from tests.tiny.families import (
    FALCON_H1,
    GEMMA3,
    GEMMA4,
    GPT_OSS,
    LLAMA4,
    MAMBA2,
    NEMOTRON_H,
    QWEN3_5,
)

pytestmark = pytest.mark.slow

PROMPT = [1 + (7 * i) % 90 for i in range(100)]
BOUNDARY = 90
TAG = CacheTag(boundary=BOUNDARY)
ALL = [NEMOTRON_H, MAMBA2, QWEN3_5, FALCON_H1, GEMMA3, GEMMA4, GPT_OSS, LLAMA4]
NAMES = [config["model_type"] for config in ALL]
Make = Callable[..., Driver]


@pytest.fixture
def make(tiny: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Servers of one network on one folder."""
    made: list[Driver] = []

    def server(**options: Any) -> Driver:
        disk = {"path": str(tmp_path), "min_free_bytes": 0}
        made.append(Driver(tiny, cache={"disk": disk}, **options))
        return made[-1]

    with driven(request.param):
        yield server
        for one in made:
            one.close()


def of(*configs: dict[str, Any]) -> pytest.MarkDecorator:
    names = [config["model_type"] for config in configs]
    return pytest.mark.parametrize("make", configs, ids=names, indirect=True)


def report(driver: Driver, name: str) -> CacheReport:
    found = driver.finish(name).timings.cache
    assert found is not None
    return found


def disk(driver: Driver) -> dict[str, Any]:
    keeping = driver.worker._cache.keeping
    assert isinstance(keeping, StateKeeping)
    return dict(keeping.numbers().disk or {})


def assert_same_cold(driver: Driver, name: str, prompt: list[int]) -> None:
    """The answer of a warm request is what it is without any cache."""
    assert driver.tokens(name) == said_cold(driver, prompt)


def first_turn(make: Make) -> list[int]:
    """What was said, by a server that is no more."""
    driver = make()
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    driver.close()
    assert disk(driver)["writes"] == 2
    return driver.tokens("one")


@of(*ALL)
def test_next_turn_goes_on_after_a_restart(make: Make) -> None:
    turn = [*PROMPT, *first_turn(make), 91, 92]
    driver = make()
    driver.run(submit("two", turn, 12, cache=CacheTag(boundary=113)))
    found = report(driver, "two")
    assert (found.status, found.reused, found.source) == (CacheStatus.HIT, 111, Source.DISK)
    assert driver.finish("two").usage.cached_tokens == 111
    assert_same_cold(driver, "two", turn)
    again = [*turn, *driver.tokens("two"), 93]
    driver.run(submit("three", again, 12, cache=CacheTag(boundary=126)))
    assert report(driver, "three").source is Source.SNAPSHOT
    assert_same_cold(driver, "three", again)


@of(*ALL)
def test_boundary_is_found_after_a_restart(make: Make) -> None:
    first_turn(make)
    driver = make()
    turn = [*PROMPT[:BOUNDARY], 91, 92, 93, 94]
    driver.run(submit("two", turn, 12, cache=CacheTag(boundary=93)))
    found = report(driver, "two")
    assert (found.status, found.reused, found.source) == (
        CacheStatus.HIT,
        BOUNDARY,
        Source.DISK,
    )
    assert_same_cold(driver, "two", turn)


@of(GEMMA3, MAMBA2)
def test_conversation_leaves_its_last_states_alone(make: Make) -> None:
    driver, turn = make(), list(PROMPT)
    for n in range(4):
        driver.run(submit(f"t{n}", turn, 12, cache=CacheTag(boundary=len(turn) - 2)))
        turn += [*driver.tokens(f"t{n}"), 91, 92]
    driver.close()
    assert disk(driver)["files"] == 2


@of(GEMMA3)
def test_other_model_finds_nothing_and_leaves_the_files_alone(make: Make, tmp_path: Path) -> None:
    first_turn(make)
    files = sorted(tmp_path.glob("*.safetensors"))
    with driven(GEMMA3 | {"sliding_window": 64}):  # of equal weights
        driver = make()
        driver.run(submit("two", [*PROMPT, 91], 12, cache=TAG))
        assert report(driver, "two").status is CacheStatus.MISS
        assert disk(driver)["foreign"] == len(files)
        assert_same_cold(driver, "two", [*PROMPT, 91])
    assert set(files) <= set(tmp_path.glob("*.safetensors"))


def test_columns_and_states_share_a_folder(tiny: Path, tmp_path: Path) -> None:
    """Neither takes the other's files for its own."""
    options = {"disk": {"path": str(tmp_path), "min_free_bytes": 0}}

    def server() -> Driver:
        driver = Driver(tiny, cache=options)
        driver.run(submit("one", [*PROMPT, *range(1, 30)], 4, cache=TAG))
        driver.close()
        return driver

    with driven(GEMMA3):
        states = server()
    columns = server()
    assert report(columns, "one").status is CacheStatus.MISS
    with driven(GEMMA3):
        again = server()
    assert disk(states)["foreign"] == 0
    assert disk(again)["foreign"] > 0
    assert (report(again, "one").source, report(again, "one").reused) == (Source.DISK, BOUNDARY)


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-40] ^= 4
    path.write_bytes(bytes(data))


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@of(GEMMA3, NEMOTRON_H)
@pytest.mark.parametrize("harm", [damaged, shortened])
def test_damaged_files_are_skipped_and_counted(
    make: Make, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    first_turn(make)
    for path in tmp_path.glob("*.safetensors"):
        harm(path)
    driver = make()
    driver.run(submit("two", [*PROMPT, 91], 12, cache=TAG))
    assert report(driver, "two").status is CacheStatus.MISS
    assert disk(driver)["unsound"] >= 1
    assert_same_cold(driver, "two", [*PROMPT, 91])


@of(GEMMA3, MAMBA2)
def test_reset_empties_the_folder(make: Make, tmp_path: Path) -> None:
    first_turn(make)
    driver = make()
    driver.run(Ask(id="r", question=Question.CACHE_RESET))
    driver.run(submit("two", [*PROMPT, 91], 12))
    driver.close()
    assert not list(tmp_path.glob("*.safetensors"))
    later = make()
    later.run(submit("two", [*PROMPT, 91], 12, cache=TAG))
    assert report(later, "two").status is CacheStatus.MISS
