"""Adapters in a running worker: whose scales a row runs under."""

from pathlib import Path

import pytest

from mlxcel.link.messages import SetLora
from tests.engine.driver import Driver, submit
from tests.weights.adapters import lora_options, pairs, write_mlx

PROMPT = [72, 101, 108, 108, 111]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path = tmp_path_factory.mktemp("adapters")
    return [write_mlx(path / "0"), write_mlx(path / "1", pairs(seed=1))]


@pytest.fixture
def driver(tiny: Path, folders: list[Path]) -> Driver:
    return Driver(tiny, lora=lora_options(*folders, scales=[1.0, 0.0]))


def test_a_change_applies_to_the_next_request_only(driver: Driver) -> None:
    before = driver.alone(submit("before", PROMPT, 24))
    driver.tick(submit("running", PROMPT, 24))
    for _ in range(4):
        driver.tick()
    assert 0 < len(driver.tokens("running")) < 24
    driver.run(SetLora(((0, 0.0), (1, 1.0))), submit("next", PROMPT, 24))
    assert driver.tokens("running") == before
    assert driver.tokens("next") != before
    driver.run(SetLora(((0, 1.0),)), submit("back", PROMPT, 24))
    assert driver.tokens("back") == before


def test_a_request_waiting_at_the_change_keeps_its_scales(driver: Driver) -> None:
    before = driver.alone(submit("before", PROMPT))
    driver.run(submit("waiting", PROMPT), SetLora(()))
    assert driver.tokens("waiting") == before


def test_scales_0_say_what_the_base_model_says(tiny: Path, driver: Driver) -> None:
    base = Driver(tiny).alone(submit("a", PROMPT, 24))
    assert driver.alone(submit("off", PROMPT, 24, lora=())) == base
    assert driver.alone(submit("on", PROMPT, 24)) != base


def test_requests_of_their_own_scales_share_a_batch(driver: Driver) -> None:
    wanted = [(), ((0, 1.0),), ((1, 1.0),), ((0, 0.5), (1, -1.0))]
    alone = [
        driver.alone(submit(f"alone-{n}", PROMPT, 24, lora=lora)) for n, lora in enumerate(wanted)
    ]
    assert len({tuple(tokens) for tokens in alone}) == len(wanted)
    driver.run(*(submit(f"batch-{n}", PROMPT, 24, lora=lora) for n, lora in enumerate(wanted)))
    assert [driver.tokens(f"batch-{n}") for n in range(len(wanted))] == alone


def test_merged_adapters_refuse_other_scales(tiny: Path, folders: list[Path]) -> None:
    merged = Driver(tiny, lora=lora_options(folders[0], fuse=True))
    merged.run(submit("other", PROMPT, lora=((0, 0.5),)))
    error = merged.failure("other").error
    assert (error.status, error.param) == (400, "lora")
    unfused = Driver(tiny, lora=lora_options(folders[0]))
    in_force = ((0, 1.0),)
    assert merged.alone(submit("same", PROMPT, lora=in_force)) == unfused.alone(
        submit("same", PROMPT)
    )
