"""How likely the tokens of a prompt were: as one forward over the whole of it says, however it is
read, and whatever runs beside it."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.core.cache import CacheStatus, CacheTag
from mlxcel.core.events import FinishReason
from mlxcel.core.request import Lane
from mlxcel.engine import prompt_scores as scoring
from mlxcel.engine.kv.choose import row_caches
from mlxcel.link.messages import (
    Cancel,
    RowAccepted,
    RowEnded,
    RowPrompt,
    RowStarted,
    RowTokens,
    Submit,
    TokenScores,
)
from tests.engine.driver import Driver, submit
from tests.engine.families_driven import driven
from tests.tiny.families import FALCON_H1, GEMMA3, NEMOTRON_H
from tests.weights.adapters import lora_options, pairs, write_mlx

TOP = 3
LENGTHS = (3, 40, 17, 90)


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(7 * i * (seed + 3) + seed * i * i + seed) % 256 for i in range(length)]


def scored(name: str, tokens: list[int], max_tokens: int = 4, **options: Any) -> Submit:
    return submit(name, tokens, max_tokens, scores_prompt=True, **{"top_logprobs": TOP} | options)


def told(driver: Driver, name: str) -> list[TokenScores]:
    events = [e for e in driver.events(name) if isinstance(e, RowPrompt)]
    return [score for event in events for score in event.scores]


def reference(driver: Driver, tokens: list[int], chunk: int | None) -> np.ndarray:
    """`[tokens - 1, vocab]`: one forward without any cache, or some over caches of the driver's
    kind; in float64 from the logits on."""
    network, head = driver.model.network, tokens[:-1]
    caches = None if chunk is None else row_caches(network, driver.worker._warming._prefiller._plan)
    size = len(head) if chunk is None else chunk
    pieces = [head[at : at + size] for at in range(0, len(head), size)]
    parts = [np.array(network(mx.array([piece]), cache=caches)[0]) for piece in pieces]
    logits = np.concatenate(parts).astype(np.float64)
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


def assert_scored(
    driver: Driver, name: str, tokens: list[int], *, top: int = TOP, chunk: int | None = None
) -> None:
    expected, scores = reference(driver, tokens, chunk), told(driver, name)
    within = 1e-4
    assert len(scores) == len(tokens) - 1
    assert all(len(score.top) == top for score in scores)
    said = [score.said for score in scores]
    np.testing.assert_allclose(said, expected[np.arange(len(said)), tokens[1:]], atol=within)
    best = -np.sort(-expected, axis=-1)[:, :top]
    for at, score in enumerate(scores):
        ids, values = [token for token, _ in score.top], [value for _, value in score.top]
        np.testing.assert_allclose(values, best[at], atol=within)
        np.testing.assert_allclose(expected[at, ids], best[at], atol=within)
        assert len(set(ids)) == top


PLAIN: dict[str, Any] = {}
CHUNKS: dict[str, Any] = {"prefill_chunk_size": 16, "prefill_grant_interval": 2}
MIXED = CHUNKS | {"mixed_step": True}
SETUPS = pytest.mark.parametrize(
    "setup", [PLAIN, CHUNKS, MIXED, {"no_batch": True}], ids=["plain", "chunks", "mixed", "serial"]
)


@SETUPS
@pytest.mark.parametrize("piece", [512, 7], ids=["whole", "pieces"])
def test_scores_are_those_of_one_forward(
    tiny: Path, setup: dict[str, Any], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PIECE", piece)
    driver = Driver(tiny, **setup)
    for n in LENGTHS:
        driver.tick(scored(f"s{n}", prompt(n, n)))
        driver.tick(submit(f"p{n}", prompt(n, n + 1), 9, temperature=1.0, seed=n))
    driver.run()
    plain = Driver(tiny)
    for n in LENGTHS:
        assert_scored(driver, f"s{n}", prompt(n, n))
        assert driver.tokens(f"s{n}") == plain.alone(submit(f"s{n}", prompt(n, n), 4))
        beside = submit(f"p{n}", prompt(n, n + 1), 9, temperature=1.0, seed=n)
        assert driver.tokens(f"p{n}") == plain.alone(beside)


def test_scores_come_in_order_before_the_answer(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PIECE", 10)
    driver = Driver(tiny, prefill_chunk_size=16)
    driver.run(scored("a", prompt(40), 1))
    kinds = [type(event) for event in driver.events("a")]
    assert kinds[:8] == [RowAccepted, *[RowPrompt] * 5, RowStarted, RowTokens]
    sizes = [len(e.scores) for e in driver.events("a") if isinstance(e, RowPrompt)]
    assert sizes == [10, 6, 10, 6, 7]


@pytest.mark.parametrize(("vocab", "tokens"), [(264, 512), (49152, 170), (151936, 55), (0, 512)])
def test_logits_of_a_piece_stay_within_bounds(vocab: int, tokens: int) -> None:
    assert scoring.piece_of(vocab) == tokens
    assert 4 * vocab * tokens <= scoring.LOGITS_BYTES


def test_what_is_done_to_draw_has_no_part_in_it(tiny: Path) -> None:
    driver = Driver(tiny)
    bias = ((7, 50.0), (14, -np.inf))
    driver.run(
        scored("a", prompt(30), temperature=3.0, bias=bias, repetition_penalty=1.5, top_k=1, seed=1)
    )
    assert_scored(driver, "a", prompt(30))


@pytest.mark.parametrize("top", [None, 0, 1, 20])
def test_as_many_of_the_likeliest_as_asked_for(tiny: Path, top: int | None) -> None:
    driver = Driver(tiny)
    driver.run(scored("a", prompt(30), top_logprobs=top))
    assert_scored(driver, "a", prompt(30), top=0 if top is None else top)


def test_without_an_answer_the_prompt_is_still_read(tiny: Path) -> None:
    driver = Driver(tiny, prefill_chunk_size=16)
    driver.tick(submit("busy", prompt(9, 2), 30))
    driver.run(scored("a", prompt(40), 0, choices=2), submit("b", prompt(20), 5))
    assert_scored(driver, "a", prompt(40))
    kinds = [type(e).__name__ for e in driver.events("a") if not isinstance(e, RowPrompt)]
    assert kinds == ["RowAccepted", "RowEnded", "RowEnded", "RowFinished"]
    assert [driver.reason("a", choice) for choice in range(2)] == [FinishReason.LENGTH] * 2
    usage = driver.finish("a").usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (40, 0)
    assert driver.tokens("b") == Driver(tiny).alone(submit("b", prompt(20), 5))
    stats = driver.stats
    assert (stats.active, stats.waiting, stats.kv_blocks, stats.completed) == (0, 0, 0, 3)


@pytest.mark.parametrize("max_tokens", [0, 2])
def test_nothing_is_told_of_a_single_token(tiny: Path, max_tokens: int) -> None:
    driver = Driver(tiny)
    driver.run(scored("a", [65], max_tokens))
    assert told(driver, "a") == []
    assert driver.tokens("a") == Driver(tiny).alone(submit("a", [65], max_tokens))
    assert driver.reason("a") is FinishReason.LENGTH


def test_choices_share_one_telling(tiny: Path) -> None:
    """Only one of them has a place at first."""
    driver = Driver(tiny, parallel=2)
    driver.tick(submit("busy", prompt(9), 12))
    driver.run(scored("a", prompt(40), 6, choices=3, temperature=1.0, seed=5))
    assert_scored(driver, "a", prompt(40))
    for choice in range(3):
        alone = Driver(tiny).alone(submit("x", prompt(40), 6, temperature=1.0, seed=5 + choice))
        assert driver.tokens("a", choice) == alone


def test_preempted_row_tells_nothing_twice(tiny: Path) -> None:
    driver = Driver(tiny, parallel=1, preemption="longest-first", prefill_chunk_size=16)
    driver.tick(scored("low", prompt(40), 30, lane=Lane.LOW, tells_progress=True))
    while not driver.tokens("low"):
        driver.tick()
    before = len([e for e in driver.events("low") if not isinstance(e, RowTokens)])
    driver.run(submit("high", prompt(8), 3, lane=Lane.HIGH))
    assert driver.stats.preemptions == 1
    assert_scored(driver, "low", prompt(40))
    after = [e for e in driver.events("low") if not isinstance(e, RowTokens)][before:]
    assert [type(e).__name__ for e in after] == ["RowPaused", "RowEnded", "RowFinished"]
    assert driver.tokens("low") == Driver(tiny).alone(submit("low", prompt(40), 30))


def test_row_that_forgets_tells_nothing_twice(tiny: Path) -> None:
    driver = Driver(tiny, parallel=1, ctx_size=64, cache={"context_shift": True})
    driver.run(scored("a", prompt(40), 60, tells_progress=True))
    assert_scored(driver, "a", prompt(40))
    assert len(driver.tokens("a")) == 60


def test_prompt_is_read_cold_and_beside_no_other(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(submit("first", prompt(90), 4, cache=CacheTag()))
    chunks = driver.stats.prefill_chunks
    driver.run(
        scored("a", prompt(90), cache=CacheTag()),
        scored("b", prompt(90), cache=CacheTag()),
        submit("c", prompt(90), 4, cache=CacheTag()),
    )
    assert_scored(driver, "a", prompt(90))
    assert_scored(driver, "b", prompt(90))
    assert driver.stats.prefill_chunks == chunks + 3
    reports = [driver.finish(name).timings.cache for name in "abc"]
    assert [report and report.status for report in reports] == [
        CacheStatus.OFF,
        CacheStatus.OFF,
        CacheStatus.HIT,
    ]


def test_cancelled_in_the_middle_leaves_nothing(tiny: Path) -> None:
    driver = Driver(tiny, prefill_chunk_size=16)
    driver.tick(submit("busy", prompt(9), 40))
    driver.tick(scored("a", prompt(90), 0))
    while not told(driver, "a"):
        driver.tick()
    driver.run(Cancel(id="a"))
    assert len(told(driver, "a")) < 89
    assert not [e for e in driver.events("a") if isinstance(e, RowEnded)]
    stats = driver.stats
    assert (stats.active, stats.waiting, stats.kv_blocks, stats.kv_bytes) == (0, 0, 0, 0)


@pytest.mark.parametrize("config", [GEMMA3, NEMOTRON_H, FALCON_H1], ids=lambda c: c["model_type"])
def test_scores_of_other_families(tiny: Path, config: dict[str, Any]) -> None:
    with driven(config):
        driver = Driver(tiny, prefill_chunk_size=16)
        driver.run(scored("a", prompt(50)))
        assert_scored(driver, "a", prompt(50))


@pytest.mark.parametrize("mode", ["int8", "fp16+turbo4"])
def test_scores_are_those_beside_coded_kv(tiny: Path, mode: str) -> None:
    driver = Driver(tiny, prefill_chunk_size=16, cache={"kv": {"mode": mode}})
    driver.run(scored("a", prompt(70)))
    assert_scored(driver, "a", prompt(70), chunk=16)


def test_scores_are_those_of_the_adapters_of_a_row(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("adapters")
    folders = [write_mlx(path / "0"), write_mlx(path / "1", pairs(seed=1))]
    driver = Driver(tiny, lora=lora_options(*folders, scales=[1.0, 0.0]))
    driver.tick(submit("busy", prompt(9), 20))
    driver.run(scored("a", prompt(40), lora=((1, 1.0),)), scored("b", prompt(40), lora=()))
    scales: list[tuple[str, tuple[float, ...]]] = [("a", (0.0, 1.0)), ("b", (0.0, 0.0))]
    for name, own in scales:
        driver.worker._lora.use([own])
        assert_scored(driver, name, prompt(40))
