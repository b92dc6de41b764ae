"""Next-token heads at work beside a hybrid target: texts are those of plain steps."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxcel.core.cache import CacheTag
from mlxcel.core.events import FinishReason
from mlxcel.core.sampling import Dry, Mirostat
from mlxcel.engine.request import cached_tokens
from mlxcel.link.messages import RowTokens, Submit
from tests.engine.draft.mtp_parts import heads
from tests.engine.draft.test_rounds import answered, rounds_of
from tests.engine.driver import Driver, submit
from tests.tiny import mtp_more
from tests.tiny.mtp import build_head, build_target, build_target_with_heads

Answer = tuple[list[int], FinishReason]

KIND = {
    "kind": "mtp",
    "max_batch": 1,
    "policy": "graded",
    "adaptive": False,
    "force": True,
    "allow_inexact": True,
}
PROMPTS = [[5], list(range(31)), [i % 250 for i in range(200)]]
LENGTHS = [1, 2, 17]
WAYS: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 1.0, "seed": 11}]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("mtp")
    return {
        "target": build_target(base / "target"),
        "head": build_head(base / "head"),
        "whole": build_target_with_heads(base / "whole"),
    }


@pytest.fixture(scope="module")
def plain(folders: dict[str, Path]) -> Iterator[Callable[[Submit], Answer]]:
    """What is answered without heads; the same is asked once."""
    driver = Driver(folders["target"], parallel=1)
    yield cache(lambda request: (answered(driver, request), driver.reason(request.id)))
    driver.close()


@pytest.fixture(scope="module", params=["folder", "checkpoint"])
def drafting(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[Driver]:
    """Chunks of 64: a long prompt is read by the head over several asks."""
    inside = request.param == "checkpoint"
    driver = Driver(
        folders["whole" if inside else "target"],
        parallel=1,
        draft=KIND,
        head=lambda model: heads(model, None if inside else folders["head"], block_size=4),
        prefill_chunk_size=64,
    )
    yield driver
    driver.close()


def test_texts_are_those_of_plain_steps(
    drafting: Driver, plain: Callable[[Submit], Answer]
) -> None:
    proposed_and_true = 0
    for prompt, length, way in product(PROMPTS, LENGTHS, WAYS):
        request = submit("r", prompt, length, **way)
        found = answered(drafting, request), drafting.reason("r")
        assert found == plain(request), (len(prompt), length, way)
        rounds, accepted = rounds_of(drafting, "r")
        # Of one token nothing is known before the second; 200 are read in four asks.
        assert (rounds > 0) == (length == 17 or (length == 2 and len(prompt) == 31))
        assert rounds < length
        proposed_and_true += accepted
    assert proposed_and_true > 20


def test_a_prompt_that_was_kept_is_drafted_from_as_well(folders: dict[str, Path]) -> None:
    """The second request reads nothing of the first again, and its head sees all of it."""
    answers, counts = [], []
    for kept in (False, True):
        driver = Driver(
            folders["target"],
            parallel=1,
            draft=KIND,
            head=lambda model: heads(model, folders["head"]),
        )
        prompt = list(range(100))
        if kept:
            driver.run(submit("a", prompt, 4, cache=CacheTag()))
        more = submit("b", [*prompt, 7, 8], 17, temperature=1.0, seed=2, cache=CacheTag())
        answers.append(answered(driver, more))
        counts.append(rounds_of(driver, "b"))
        cached = cached_tokens(driver.finish("b").timings.cache) or 0
        assert (cached >= 96) == kept
        driver.close()
    assert answers[0] == answers[1]
    assert counts[0] == counts[1]
    assert counts[0][1] > 0


@pytest.mark.parametrize(
    "way",
    [
        pytest.param({"top_logprobs": 2}, id="logprobs"),
        pytest.param({"presence_penalty": 0.9, "penalty_window": 16}, id="penalty"),
        pytest.param(
            {"dry": Dry(multiplier=1.0, base=1.75, allowed_length=1, window=32)}, id="dry"
        ),
        pytest.param({"mirostat": Mirostat(version=2, rate=0.2, target=3.0)}, id="mirostat"),
    ],
)
def test_rows_whose_draws_depend_on_the_text(
    folders: dict[str, Path], plain: Callable[[Submit], Answer], way: dict[str, Any]
) -> None:
    driver = Driver(
        folders["target"],
        parallel=1,
        draft=KIND,
        head=lambda model: heads(model, folders["head"]),
    )
    request = submit("r", [1, 2, 3], 17, temperature=1.0, seed=4, **way)
    assert answered(driver, request) == plain(request)[0]
    assert rounds_of(driver, "r")[1] > 0
    driver.close()


def test_modified_rejection(
    folders: dict[str, Path],
    plain: Callable[[Submit], Answer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Greedy texts stay; what is drawn comes with the scores the model gives it there."""
    caplog.set_level("INFO")
    driver = Driver(
        folders["target"],
        parallel=1,
        draft=KIND | {"stochastic_accept": True, "accept_diag": True},
        head=lambda model: heads(model, folders["head"], stochastic_accept=True),
    )
    greedy = submit("r", list(range(31)), 17)
    assert answered(driver, greedy) == plain(greedy)[0]
    drawn = submit("r", [1, 2, 3], 40, temperature=1.0, seed=4, top_logprobs=0)
    text = answered(driver, drawn)
    assert rounds_of(driver, "r")[1] > 5
    rules = [text.split()[2] for text in caplog.messages if text.startswith("[Speculative")]
    assert rules == ["rule=greedy", "rule=rejection"]
    said = [event for event in driver.events("r") if isinstance(event, RowTokens)]
    told = [event.scores[0].said for event in said if event.scores]
    logits = driver.model.network(mx.array([[1, 2, 3, *text]]))[0, 2:-1]
    scores = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    expected = mx.take_along_axis(scores, mx.array(text)[:, None], axis=-1)[:, 0]
    assert told == pytest.approx(expected.tolist(), abs=1e-3)
    driver.close()


def test_rows_share_a_round_where_states_are_cut(tmp_path: Path) -> None:
    """Three rows beside each other, of a target that is attention alone; its last layer is read."""
    folder = mtp_more.build_target(tmp_path / "mimo", mtp_more.MIMO)
    mx.save_safetensors(str(folder / "heads.safetensors"), mtp_more.mimo_as_trained())
    rows = [
        submit("a", [1], 12),
        submit("b", list(range(40)), 12, temperature=1.0, seed=1),
        submit("c", [7, 8, 9], 12, temperature=0.7, seed=2),
    ]
    alone = Driver(folder, parallel=3)
    expected = [answered(alone, row) for row in rows]
    alone.close()
    driver = Driver(folder, parallel=3, draft=KIND | {"max_batch": 3}, head=heads)
    driver.run(*rows)
    assert [driver.tokens(row.id) for row in rows] == expected
    assert all(rounds_of(driver, row.id)[0] > 2 for row in rows)
    driver.close()
