"""Models whose caches are not plain KV: rotating windows, and caches that cannot be merged."""

import json
import random
import shutil
from pathlib import Path

import pytest

from mlxcel.engine.kv.library import LibraryKV, SoloKV
from mlxcel.engine.kv.ragged import RaggedKV
from tests.engine.driver import Driver, submit

WINDOW = 16


@pytest.fixture(scope="module")
def sliding(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, its first layer attending to the last 16 tokens alone."""
    folder = tmp_path_factory.mktemp("sliding") / "tiny-sliding"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": WINDOW,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def prompt(length: int) -> list[int]:
    rng = random.Random(length)
    return [rng.randrange(256) for _ in range(length)]


def test_plain_caches_get_the_ragged_batch(tiny: Path) -> None:
    assert isinstance(Driver(tiny).worker._decoder._kv, RaggedKV)


def test_rotating_rows_in_a_batch_equal_rows_alone(sliding: Path) -> None:
    driver = Driver(sliding)
    assert isinstance(driver.worker._decoder._kv, LibraryKV)
    rows = [submit(f"s{n}", prompt(n), 8 + n) for n in (4, 30, 11, 50, 20)]
    for row in rows:
        driver.tick(row)
    driver.run()
    for row in rows:
        assert driver.tokens(row.id) == Driver(sliding).alone(row)


def test_model_whose_caches_cannot_merge_gets_one_slot(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxcel.engine.chat.can_batch", lambda network: False)
    monkeypatch.setattr("mlxcel.engine.chat.batch_for", lambda network, slots: SoloKV())
    driver = Driver(tiny)
    rows = [submit(f"o{n}", prompt(n), 9) for n in (4, 30)]
    driver.run(*rows)
    assert driver.frames[-1].stats.slots == 1
    for row in rows:
        assert driver.tokens(row.id) == Driver(tiny).alone(row)
