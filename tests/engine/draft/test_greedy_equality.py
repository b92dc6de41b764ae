"""Greedy texts with and without drafting are equal, whatever stands beside them in the batch."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.convert import convert
from mlx_lm.models.llama import Model, ModelArgs

from tests.engine.draft.equality import Told, batches, compare, gap_where_they_part, told
from tests.engine.driver import Driver

STORE = Path(os.environ.get("MLXCEL_TEST_STORE", Path(__file__).parents[3] / ".cache/test-store"))
SMOLLM2 = STORE / "models" / "SmolLM2-135M-Instruct"
LOOKUP: dict[str, Any] = {
    "kind": "prompt_lookup",
    "ngram_min": 1,
    "ngram_max": 3,
    "max_draft": 7,
    "max_batch": 4,
    "policy": "graded",
}
FULL: dict[str, Any] = {
    "kind": "full_model",
    "max_draft": 3,
    "max_batch": 4,
    "policy": "graded",
    "stochastic_accept": False,
}
SETUPS: dict[str, tuple[dict[str, Any], str | None]] = {
    "lookup": (LOOKUP, None),
    "lookup-2": (LOOKUP | {"max_batch": 2}, None),
    "same-weights": (FULL, "same"),
    "random-weights": (FULL, "random"),
    "random-weights-2": (FULL | {"max_batch": 2}, "random"),
}
"""What drafts, and with which model."""
BYTES = range(256)
WORDS = range(100, 40000)


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Iterator[Driver]:
    driver = Driver(tiny)
    yield driver
    driver.close()


@pytest.fixture
def drafting(request: pytest.FixtureRequest, tiny: Path, other: Path) -> Iterator[Driver]:
    draft, which = SETUPS[request.param]
    drafter = {None: None, "same": tiny, "random": other}[which]
    driver = Driver(tiny, draft=draft, drafter=drafter)
    yield driver
    driver.close()


@pytest.mark.parametrize("drafting", ["lookup", "lookup-2", "same-weights"], indirect=True)
def test_texts_of_the_tiny_model(plain: Driver, drafting: Driver) -> None:
    tally = compare(plain, drafting, batches(13, BYTES, longest=30, new=12))
    assert tally.texts >= 13
    assert tally.rounds >= 5
    assert (tally.near, tally.others) == (0, [])


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("drafting", SETUPS, indirect=True)
def test_200_texts_of_the_tiny_model(plain: Driver, drafting: Driver) -> None:
    tally = compare(plain, drafting, batches(200, BYTES, longest=60, new=24, seed=8))
    print(tally)
    assert tally.texts >= 200
    assert not tally.others, tally


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """SmolLM2 in float32, as it is kept (4 bits), and random weights with its tokens."""
    if not SMOLLM2.exists():
        pytest.skip(f"no {SMOLLM2}: the tests of whole programs fetch it")
    folder = tmp_path_factory.mktemp("large")
    convert(str(SMOLLM2), str(folder / "float32"), dequantize=True, dtype="float32")
    return {
        "float32": folder / "float32",
        "same": SMOLLM2,
        "random": random_drafter(folder / "random"),
    }


def random_drafter(folder: Path) -> Path:
    """One layer, 64 wide."""
    shutil.copytree(SMOLLM2, folder, ignore=shutil.ignore_patterns("*.safetensors*", "config.json"))
    config = {
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(3)
    weights = dict(tree_flatten(Model(ModelArgs.from_dict(config)).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    return folder


@pytest.fixture(scope="module")
def large_plain(large: dict[str, Path]) -> Iterator[tuple[Driver, list[list[Told]]]]:
    """And what it says."""
    driver = Driver(large["float32"])
    yield driver, [told(driver, rows) for rows in LARGE_WORK]
    driver.close()


LARGE_WORK = batches(200, WORDS, longest=30, new=10)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("setup", SETUPS)
def test_200_texts_of_smollm2(
    large: dict[str, Path], large_plain: tuple[Driver, list[list[Told]]], setup: str
) -> None:
    """Rows of other kinds are there to be beside: what they draw may hang on a rounding too."""
    draft, which = SETUPS[setup]
    driver = Driver(large["float32"], draft=draft, drafter=None if which is None else large[which])
    plain, expected = large_plain
    tally = compare(plain, driver, LARGE_WORK, expected)
    driver.close()
    print(setup, tally)
    assert tally.texts >= 200
    assert tally.rounds >= 200


def test_only_a_near_tie_is_one(plain: Driver) -> None:
    """The measure itself: a likeliest token against another, and texts of other lengths."""
    logits = plain.model.network(mx.array([[1, 2, 3]]))[0, -1]
    order = cast(list[int], mx.argsort(-logits).tolist())
    gap = float((logits[order[0]] - logits[order[1]]).item())
    found = gap_where_they_part(plain, [1, 2, 3], [order[1]], [order[0]])
    assert found == pytest.approx(gap, abs=1e-5)
    far = gap_where_they_part(plain, [1, 2, 3], [order[100]], [order[0]])
    assert far > gap
    assert gap_where_they_part(plain, [1, 2, 3], [5], [5, 6]) == float("inf")
