"""A DSpark head: every position proposes, each with a correction by the token before it."""

from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.core.errors import StartupError
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.dflash.drafter import DFlash, Silent
from mlxcel.weights.load import LoadedModel
from tests.engine.draft.dflash_pair import drafter_of, load_head, load_target
from tests.engine.draft.test_dflash_network import BLOCK, LAST, Reference, some_rows
from tests.engine.draft.test_dflash_rounds import KIND, PROMPTS, Heads
from tests.engine.draft.test_rounds import Oracle, answered, rounds_of
from tests.engine.driver import Driver, submit
from tests.tiny.dflash import DSPARK, LFM2, build_head, build_target, head_weights
from tests.tiny.families import build_family_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_target(build_target(tmp_path_factory.mktemp("dspark") / "target"))


def walked(reference: Reference, rows: mx.array) -> list[int]:
    """The likeliest token of each position, all before it chosen."""
    lookup, output = (reference.weights[f"markov_head.markov_w{n}.weight"] for n in (1, 2))
    found, before = [], LAST
    for logits in reference.logits(np.array(rows, np.float64), first=0):
        before = int(np.argmax(logits + output @ lookup[before]))
        found.append(before)
    return found


def test_proposals_are_walked(model: LoadedModel, tmp_path: Path) -> None:
    head = load_head(build_head(tmp_path / "head", **DSPARK), model)
    assert head.most == BLOCK
    reference = Reference(model, **DSPARK)
    uncorrected = set()
    for seed in range(8):
        rows = some_rows(10, seed)
        drafter = drafter_of(head)
        drafter.hear([*range(10), LAST])
        drafter.look(rows)
        expected = walked(reference, rows)
        assert drafter.propose(BLOCK) == expected
        assert drafter.propose(3) == expected[:3]
        logits = reference.logits(np.array(rows, np.float64), first=0)
        uncorrected.add(np.argmax(logits, axis=-1).tolist() == expected)
    assert uncorrected == {False}, "the correction changes nothing"


def test_it_is_for_greedy_rows(model: LoadedModel, tmp_path: Path) -> None:
    head = load_head(build_head(tmp_path / "head", **DSPARK), model)
    assert isinstance(head.make(SamplingParams(temperature=0.0)), DFlash)
    assert isinstance(head.make(SamplingParams(temperature=1.0, top_k=1)), DFlash)
    assert isinstance(head.make(SamplingParams(temperature=1.0)), Silent)


def test_width(model: LoadedModel, tmp_path: Path) -> None:
    folder = build_head(tmp_path / "head", **DSPARK | {"block_size": 9})
    assert load_head(folder, model).most == 7
    wide = load_head(folder, model, block_size=10)
    assert wide.most == 9
    assert drafter_of(wide)._blocks.size == 9
    assert load_head(folder, model, block_size=11).most == 9


def test_its_tensors(model: LoadedModel, tmp_path: Path) -> None:
    weights = head_weights(**DSPARK)
    less = {name: one for name, one in weights.items() if "w2" not in name}
    folder = build_head(tmp_path / "less", weights=less, **DSPARK)
    with pytest.raises(StartupError, match=r"heads without: markov_head\.markov_w2\.weight$"):
        load_head(folder, model)
    folder = build_head(tmp_path / "plain", weights=weights)
    with pytest.raises(StartupError, match=r"has: confidence_head\.proj\.bias, .*markov_w2"):
        load_head(folder, model)


@pytest.mark.parametrize("config", [None, LFM2], ids=["qwen3", "lfm2"])
def test_texts_are_those_of_plain_steps(tmp_path: Path, config: dict[str, Any] | None) -> None:
    """Also on a target that keeps the last inputs of convolutions."""
    target = tmp_path / "target"
    if config is None:
        build_target(target)
    else:
        build_family_checkpoint(target, config, window=512)
    folder = build_head(tmp_path / "head", **DSPARK)
    plain = Driver(target, parallel=1)
    answers: dict[tuple[int, ...], list[int]] = {}
    own, right = partial(load_head, folder), Heads(folder, Oracle(answers, "right")._foresee)
    for head in (own, right):
        driver = Driver(target, parallel=1, draft=KIND, head=head)
        for prompt in PROMPTS:
            request = submit("r", prompt, 17)
            expected = answered(plain, request)
            answers.clear()
            answers[tuple(prompt)] = expected
            assert answered(driver, request) == expected
            rounds = rounds_of(driver, "r")
            # 7, 7 and 3 tokens.
            assert rounds == (3, 14) if head is right else rounds[0]
        if head is own:
            drawn = submit("r", [5], 9, temperature=1.0, seed=1)
            assert answered(driver, drawn) == answered(plain, drawn)
            assert rounds_of(driver, "r") == (0, 0)
        driver.close()
    plain.close()
