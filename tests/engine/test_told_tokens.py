"""The loop guard and log-probabilities, through the worker."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.core.events import FinishReason
from mlxcel.core.steering import LoopGuard, Thinking
from mlxcel.link.messages import RowEnded, RowTokens, TokenScores
from tests.engine.driver import Driver, submit
from tests.tiny.counting import CLOSE, LIKELY, THINK, build_counting_checkpoint

SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "seed": 7}
BOTH = pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_counting_checkpoint(tmp_path_factory.mktemp("counting") / "tiny-counting")


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(7 * i * (seed + 3) + seed) % 256 for i in range(length)]


# The loop guard.

GUARD = LoopGuard(shortest=1, longest=20, count=4)


@BOTH
@pytest.mark.parametrize(
    ("text", "guard", "max_tokens", "said", "reason"),
    [
        pytest.param(b"7", GUARD, 20, b"7777", FinishReason.LOOP, id="one"),
        pytest.param(b"1", GUARD, 20, b"21212121", FinishReason.LOOP, id="two"),
        pytest.param(b"1", GUARD, 7, b"2121212", FinishReason.LENGTH, id="one-short-of-it"),
        pytest.param(b"7", GUARD, 4, b"7777", FinishReason.LENGTH, id="limit-comes-first"),
        pytest.param(b"777777777", GUARD, 20, b"7777", FinishReason.LOOP, id="not-the-prompt"),
        pytest.param(
            b"7",
            LoopGuard(shortest=2, longest=3, count=3),
            20,
            b"777777",
            FinishReason.LOOP,
            id="shortest",
        ),
        pytest.param(
            b"1",
            LoopGuard(shortest=1, longest=1, count=2),
            9,
            b"212121212",
            FinishReason.LENGTH,
            id="longest",
        ),
        pytest.param(
            b"7",
            LoopGuard(shortest=1, longest=0, count=4),
            9,
            b"777777777",
            FinishReason.LENGTH,
            id="off",
        ),
        pytest.param(b"7", None, 9, b"777777777", FinishReason.LENGTH, id="none"),
    ],
)
def test_loop_guard_ends_what_repeats_itself(
    counting: Path,
    text: bytes,
    guard: LoopGuard | None,
    max_tokens: int,
    said: bytes,
    reason: FinishReason,
    sampling: dict[str, Any],
) -> None:
    driver = Driver(counting)
    driver.run(
        submit("loop", list(text), max_tokens, loop=guard, **sampling),
        submit("other", list(b"xA"), 9, loop=GUARD, **sampling),
    )
    assert bytes(driver.tokens("loop")) == said
    assert driver.reason("loop") is reason
    assert driver.finish("loop").usage.completion_tokens == len(said)
    assert bytes(driver.tokens("other")) == b"BCDEFGHIJ"


def test_loop_guard_ends_each_choice_by_itself(tiny: Path) -> None:
    driver = Driver(tiny)
    always: dict[str, Any] = {"bias": ((65, 1e4),), "temperature": 1.0}
    driver.run(submit("n", prompt(9), 20, choices=2, loop=GUARD, **always))
    for choice in range(2):
        assert bytes(driver.tokens("n", choice)) == b"AAAA"
        assert driver.reason("n", choice) is FinishReason.LOOP
    assert driver.finish("n").usage.completion_tokens == 8


# Log-probabilities.


@pytest.mark.parametrize("lookahead", [True, False], ids=["ahead", "in-step"])
def test_log_probabilities_are_those_of_a_plain_forward(tiny: Path, lookahead: bool) -> None:
    """Before truncation and temperature, bias included; for the rows that asked, as many as they
    asked for."""
    asked = {"none": None, "zero": 0, "two": 2, "five": 5, "biased": 3}
    options: dict[str, dict[str, Any]] = {
        "two": {"temperature": 0.7, "top_k": 3},
        "five": {"temperature": 1.5},
        "biased": {"bias": ((65, 6.0), (66, -np.inf))},
    }
    driver = Driver(tiny, parallel=5, lookahead=lookahead)
    driver.run(
        *(
            submit(name, prompt(9 + i, i), 10 + i, top_logprobs=count, **options.get(name, {}))
            for i, (name, count) in enumerate(asked.items())
        )
    )
    for i, (name, count) in enumerate(asked.items()):
        said, told = (
            driver.tokens(name),
            [event for event in driver.events(name) if isinstance(event, RowTokens)],
        )
        assert len(said) == 10 + i
        if count is None:
            assert [event.scores for event in told] == [None] * len(told)
            continue
        expected = log_softmax(driver, prompt(9 + i, i), said, options.get(name, {}))
        scores = [score for event in told for score in event.scores or []]
        assert len(scores) == len(said)
        for token, score, row in zip(said, scores, expected, strict=True):
            assert score.said == pytest.approx(row[token], abs=1e-3)
            best = np.argsort(-row, kind="stable")[:count].tolist()
            assert [found for found, _ in score.top] == best
            assert [value for _, value in score.top] == pytest.approx(row[best], abs=1e-3)


@pytest.mark.parametrize("lookahead", [True, False], ids=["ahead", "in-step"])
def test_log_probabilities_may_be_those_of_the_draw(tiny: Path, lookahead: bool) -> None:
    """After truncation and temperature; beside rows that ask for the model's own."""
    driver = Driver(tiny, parallel=3, lookahead=lookahead)
    drawn: dict[str, Any] = {"temperature": 0.5, "top_k": 3, "seed": 4}
    driver.run(
        submit("drawn", prompt(9), 10, top_logprobs=5, is_post_sampling=True, **drawn),
        submit("greedy", prompt(9), 10, top_logprobs=2, is_post_sampling=True),
        submit("own", prompt(9), 10, top_logprobs=2),
    )
    said = driver.tokens("drawn")
    for token, score, row in zip(
        said, told(driver, "drawn"), log_softmax(driver, prompt(9), said, {}), strict=True
    ):
        best = np.argsort(-row, kind="stable")[:3]
        odds = row[best] / 0.5
        odds -= np.log(np.exp(odds).sum())
        assert [found for found, _ in score.top] == best.tolist()
        assert [value for _, value in score.top] == pytest.approx(odds, abs=2e-3)
        assert score.said == dict(score.top)[token]
    greedy = told(driver, "greedy")
    assert greedy == [TokenScores(0.0, [(token, 0.0)]) for token in driver.tokens("greedy")]
    assert driver.tokens("own") == driver.tokens("greedy")
    assert all(len(score.top) == 2 and score.said < 0 for score in told(driver, "own"))


def test_a_forced_token_was_sure_where_the_draw_is_told(counting: Path) -> None:
    block = Thinking(open_ids=(THINK,), close_ids=(CLOSE,), budget=1)
    driver = Driver(counting)
    asked = {"top_logprobs": 2, "is_post_sampling": True, "thinking": block}
    driver.run(submit("t", list(b"x?"), 5, **asked, **SAMPLED))
    tokens = driver.tokens("t")
    assert tokens == [THINK, ord("a"), CLOSE, *b"AB"]
    assert told(driver, "t") == [TokenScores(0.0, [(token, 0.0)]) for token in tokens]


def told(driver: Driver, name: str) -> list[TokenScores]:
    events = [event for event in driver.events(name) if isinstance(event, RowTokens)]
    return [score for event in events for score in event.scores or []]


def log_softmax(
    driver: Driver, ids: list[int], said: list[int], options: dict[str, Any]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`[said, vocab]`, from one forward over all tokens."""
    logits = np.array(driver.model.network(mx.array([[*ids, *said]]))[0], np.float64)
    logits = logits[len(ids) - 1 : -1]
    for token, value in options.get("bias", ()):
        logits[:, token] += value
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_forced_tokens_and_each_choice_have_log_probabilities(counting: Path) -> None:
    """The end of the block is as unlikely as it would be without a budget."""
    block = Thinking(open_ids=(THINK,), close_ids=(CLOSE,), budget=1)
    driver = Driver(counting)
    driver.run(submit("t", list(b"x?"), 6, choices=2, top_logprobs=1, thinking=block, **SAMPLED))
    for choice in range(2):
        told = [
            score
            for event in driver.events("t")
            if isinstance(event, RowTokens) and event.choice == choice
            for score in event.scores or []
        ]
        assert [score.said for score in told] == pytest.approx([0, 0, -LIKELY, 0, 0, 0], abs=0.1)
        wanted = [THINK, *b"ab", *b"ABC"]
        assert [token for score in told for token, _ in score.top] == wanted
    assert len([e for e in driver.events("t") if isinstance(e, RowEnded)]) == 2
