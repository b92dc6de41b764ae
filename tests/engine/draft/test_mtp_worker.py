"""A worker that finds out whether MTP pays: over requests, over starts, and what it says of it."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxcel.core.status import MtpPolicyReport
from mlxcel.engine import decode
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.draft.mtp import probe
from mlxcel.link.messages import Cancel
from mlxcel.weights.load import LoadedModel
from tests.engine.draft.test_heads import Watchers
from tests.engine.draft.test_rounds import Oracle, answered, rounds_of
from tests.engine.driver import Driver, submit

DRAFT = {
    "kind": "mtp",
    "max_batch": 1,
    "policy": "graded",
    "adaptive": True,
    "force": None,
    "allow_inexact": True,
}
PROMPT = [7, 8, 9]
ANSWER = 14
Start = Callable[..., Driver]


@pytest.fixture(scope="module")
def text(tiny: Path) -> list[int]:
    driver = Driver(tiny, parallel=1)
    said = answered(driver, submit("r", PROMPT, ANSWER))
    driver.close()
    return said


@pytest.fixture
def start(tiny: Path, tmp_path: Path, text: list[int]) -> Iterator[Start]:
    """Starts workers with one cache folder."""
    started: list[Driver] = []

    def make(kind: str = "right", **draft: Any) -> Driver:
        watchers = Watchers((0,), Oracle({tuple(PROMPT): text}, kind), most=3)

        def head(model: LoadedModel) -> DraftHead:
            return replace(watchers(model), kind="mtp", name="heads")

        driver = Driver(
            tiny, parallel=2, draft=DRAFT | draft, head=head, cache_dir=tmp_path / "cache"
        )
        started.append(driver)
        return driver

    yield make
    for driver in started:
        driver.close()


@contextmanager
def clocked(monkeypatch: pytest.MonkeyPatch, *, plain_ms: float, round_ms: float) -> Iterator[None]:
    """Steps take so long, whatever they take."""
    now = 0.0
    wide = decode.Decoder._wide

    def stepped(self: decode.Decoder, inputs: mx.array) -> mx.array:
        nonlocal now
        now += (plain_ms if inputs.shape[1] == 1 else round_ms) / 1e3
        return wide(self, inputs)

    with monkeypatch.context() as patch:
        patch.setattr(decode.Decoder, "_wide", stepped)
        patch.setattr(decode.time, "perf_counter", lambda: now)
        yield


def policy(driver: Driver) -> MtpPolicyReport:
    frame = driver.tick()
    stats = driver.stats if frame is None else frame.stats
    assert stats.mtp_policy is not None
    return stats.mtp_policy


def profile(driver: Driver, text: list[int]) -> None:
    for n in range(4):
        report = policy(driver)
        assert (report.state, report.samples, report.mtp_enabled) == ("profiling", n, True)
        assert answered(driver, submit("r", PROMPT, ANSWER)) == text


# Three of four tokens of a round were foreseen, and it costs as much as two plain steps.
@pytest.mark.parametrize(
    ("kind", "verdict", "is_on"), [("right", "enable", True), ("wrong", "decline", False)]
)
def test_four_requests_settle_it_for_good(
    start: Start,
    text: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    verdict: str,
    is_on: bool,
) -> None:
    first = start(kind)
    with clocked(monkeypatch, plain_ms=5.0, round_ms=10.0):
        profile(first, text)
    for driver in (first, start(kind)):
        report = policy(driver)
        assert (report.state, report.verdict, report.mtp_enabled) == ("settled", verdict, is_on)
        assert answered(driver, submit("r", PROMPT, ANSWER)) == text
        assert bool(rounds_of(driver, "r")[0]) == is_on
    (path,) = (tmp_path / "cache" / "mtp-policy").iterdir()
    kept = json.loads(path.read_text())
    assert (kept["target"], kept["drafter"], kept["block_size"]) == ("tiny (float32)", "heads", 4)
    assert kept["verdict"] == verdict


def test_profiling_takes_two_plain_steps_a_request(start: Start, text: list[int]) -> None:
    forced, profiling = start(force=True), start()
    for driver in (forced, profiling):
        assert answered(driver, submit("r", PROMPT, ANSWER)) == text
    # 4 tokens a round and the last 2; with 2 plain steps among them 12 are left.
    assert rounds_of(forced, "r") == (4, 10)
    assert rounds_of(profiling, "r") == (3, 9)
    assert policy(profiling).acceptance_rate == 1.0


def test_a_row_in_company_is_not_measured(start: Start, text: list[int]) -> None:
    driver = start()
    driver.run(submit("a", PROMPT, ANSWER), submit("b", [1, 2], ANSWER + 2))
    assert driver.tokens("a") == text
    assert policy(driver).samples == 0
    assert policy(driver).acceptance_rate is None


def test_a_cancelled_row_ends_its_burst(start: Start, text: list[int]) -> None:
    driver = start()
    driver.tick(submit("r", PROMPT, ANSWER))
    while len(driver.tokens("r")) < 7:
        driver.tick()
    driver.run(Cancel(id="r"))
    assert policy(driver).samples == 1


@pytest.mark.parametrize(
    ("draft", "state", "is_on"),
    [
        pytest.param({"force": True}, "forced", True, id="on"),
        pytest.param({"force": False}, "forced", False, id="off"),
        pytest.param({"adaptive": False}, "unavailable", False, id="static"),
    ],
)
def test_nothing_is_measured(
    start: Start, text: list[int], draft: Any, state: str, is_on: bool
) -> None:
    driver = start(**draft)
    assert (policy(driver).state, policy(driver).mtp_enabled) == (state, is_on)
    assert answered(driver, submit("r", PROMPT, ANSWER)) == text
    assert bool(rounds_of(driver, "r")[0]) == is_on


def test_wide_steps_that_round_otherwise_decline_it(
    start: Start,
    text: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = []

    def found(network: Any, width: int, **how: Any) -> str:
        asked.append(width)
        return "they differ"

    monkeypatch.setattr("mlxcel.engine.draft.mtp.build.differs", found)
    driver = start(allow_inexact=False)
    report = policy(driver)
    assert (report.state, report.decline_detail) == ("exactness_declined", "they differ")
    assert "draft.allow_inexact" in caplog.text
    assert answered(driver, submit("r", PROMPT, ANSWER)) == text
    assert not rounds_of(driver, "r")[0]
    with caplog.at_level(logging.WARNING):
        assert policy(start(force=False, allow_inexact=False)).state == "forced"
    assert asked == [4]


def test_wide_steps_that_fail_decline_it(
    start: Start, text: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = probe._Ground._step

    def failing(self: Any, kv: Any, tokens: Any) -> mx.array:
        made = step(self, kv, tokens)
        if len(tokens) > 1:
            raise RuntimeError("no such kernel")
        return made

    monkeypatch.setattr(probe._Ground, "_step", failing)
    driver = start(allow_inexact=False)
    report = policy(driver)
    assert report.state == "exactness_declined"
    assert report.decline_detail == "a step over 4 tokens fails: no such kernel"
    assert answered(driver, submit("r", PROMPT, ANSWER)) == text


def test_the_probe_leaves_the_batch_empty(start: Start, text: list[int]) -> None:
    driver = start(allow_inexact=False)
    assert policy(driver).state in {"profiling", "exactness_declined"}  # as the BLAS has it
    driver.worker.check()
    assert answered(driver, submit("r", PROMPT, ANSWER)) == text


def test_other_drafters_have_no_policy(tiny: Path) -> None:
    lookup = {"kind": "prompt_lookup", "ngram_min": 2, "ngram_max": 4, "max_draft": 7}
    driver = Driver(tiny, draft={**lookup, "max_batch": 2, "policy": "graded"})
    driver.run(submit("r", PROMPT, 2))
    assert driver.stats.mtp_policy is None
    driver.close()
