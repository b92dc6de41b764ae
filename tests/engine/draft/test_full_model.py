"""A smaller model that proposes: its KV is always that of the text, whatever came true."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.full_model import FullModel
from mlxcel.engine.draft.load import load_drafter
from mlxcel.link.messages import RowFinished
from mlxcel.weights.load import LoadedModel, load_model
from tests.engine.driver import Driver, submit
from tests.tiny.checkpoint import build_tiny_checkpoint

DRAFT: dict[str, Any] = {
    "kind": "full_model",
    "max_draft": 5,
    "max_batch": 4,
    "policy": "graded",
    "stochastic_accept": False,
}
PART = {
    "precision": "float32",
    "batch": 4,
    "device": "auto",
    "weight_materialization": "eager",
}


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Driver:
    return Driver(tiny, parallel=4)


@pytest.fixture(scope="module")
def model(tiny: Path) -> LoadedModel:
    more = {"train_window": 0, "fuse_projections": "off"}
    return load_model({"path": str(tiny), **PART, **more}, _quiet)


def _quiet(text: str, share: float | None) -> None: ...


@pytest.fixture(scope="module", params=["itself", "another"])
def drafting(request: pytest.FixtureRequest, tiny: Path, other: Path) -> Iterator[Driver]:
    drafter = tiny if request.param == "itself" else other
    # Chunks of 8: longer prompts are read over several asks.
    driver = Driver(tiny, parallel=4, draft=DRAFT, drafter=drafter, prefill_chunk_size=8)
    yield driver
    driver.close()


def test_texts_are_those_of_plain_steps(drafting: Driver, plain: Driver) -> None:
    numbers = random.Random(1)
    for n in range(24):
        rows = [
            submit(
                f"{n}-{row}",
                [numbers.randrange(256) for _ in range(numbers.choice([1, 5, 31]))],
                numbers.choice([1, 2, 17]),
                temperature=numbers.choice([0.0, 0.7, 1.0]),
                seed=numbers.randrange(2**32),
            )
            for row in range(numbers.randrange(1, 5))
        ]
        for driver in (drafting, plain):
            driver.frames.clear()
            driver.run(*rows)
        for row in rows:
            assert drafting.tokens(row.id) == plain.tokens(row.id)
            assert drafting.reason(row.id) is plain.reason(row.id)
    assert drafting.stats.draft_rounds > 50


def test_one_that_draws_alike_is_always_right(tiny: Path) -> None:
    """Also at a temperature: both invert their distribution at the same number."""
    driver = Driver(tiny, parallel=4, draft=DRAFT, drafter=tiny)
    driver.run(submit("r", [1, 2, 3], 18, temperature=1.0, seed=3))
    (end,) = [event for event in driver.events("r") if isinstance(event, RowFinished)]
    drafted = end.timings.drafted
    assert drafted is not None
    assert (drafted.kind, drafted.rounds) == ("full-model", 3)
    assert (drafted.proposed, drafted.accepted) == (15, 15)
    driver.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_its_kv_is_that_of_the_text(model: LoadedModel, temperature: float) -> None:
    """After any mixture of what came true and what did not, and of asks that led to nothing, it
    proposes what a fresh one does."""
    sampling = SamplingParams(temperature=temperature, seed=5)
    numbers = random.Random(2)
    prompt = [numbers.randrange(256) for _ in range(20)]

    def fresh() -> FullModel:
        made = FullModel(model.network, sampling, vocab=model.vocab_size, chunk=0)
        made.hear(prompt)
        return made

    one, said = fresh(), list[int]()
    for _ in range(25):
        expected = fresh()
        expected.hear(said)
        count = numbers.randrange(1, 6)
        proposed = expected.propose(count)
        assert one.propose(count) == proposed
        if numbers.random() < 0.3:
            continue  # nothing was made of it
        heard = proposed[: numbers.randrange(count + 1)]
        if not heard or numbers.random() < 0.5:
            heard.append(numbers.randrange(256))  # else all that was heard had been foreseen
        said += heard
        one.hear(heard)


def test_a_prompt_is_read_in_chunks(model: LoadedModel) -> None:
    whole = FullModel(model.network, SamplingParams(temperature=0), vocab=264, chunk=0)
    parts = FullModel(model.network, SamplingParams(temperature=0), vocab=264, chunk=8)
    prompt = list(range(20))
    whole.hear(prompt)
    parts.hear(prompt)
    assert [parts.propose(3), parts.propose(3)] == [[], []]
    assert parts.propose(3) == whole.propose(3)


def test_other_tokens_are_refused(model: LoadedModel, tmp_path: Path) -> None:
    stranger = build_tiny_checkpoint(tmp_path / "stranger", markers=("<think>", "</think>"))
    with pytest.raises(StartupError, match="has other tokens than"):
        load_drafter({"path": str(stranger), **PART}, _quiet, model=model)
