"""Adapters of a running server: scaled by whoever operates it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.weights.adapters import write_mlx
from tests.whole.program import Program, serve_checkpoint, text_of
from tests.whole.streaming import Stream

pytestmark = pytest.mark.slow
ROUTE = "/lora-adapters"
PROMPT = "who speaks?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With room for an answer that takes seconds."""
    return build_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny", window=20_000)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mlx(tmp_path_factory.mktemp("adapters") / "one")


@pytest.fixture(scope="module")
def adapted(model: Path, adapter: Path) -> Iterator[Program]:
    words = ("--lora", str(adapter), "workers.backoff.initial_s=0.1")
    with Program(*serve_checkpoint(model, *words)) as program:
        yield program


def scale(program: Program, value: float) -> None:
    assert program.post(ROUTE, [{"id": 0, "scale": value}]) == (200, {"success": True})


def say(program: Program, tokens: int = 40) -> str:
    return text_of(program.chat(PROMPT, max_tokens=tokens))


def shown(program: Program) -> list[Any]:
    status, adapters = program.get(ROUTE)
    assert status == 200
    return [(one["id"], one["scale"]) for one in adapters]


def test_scale_0_is_the_base_model_and_scales_may_come_back(adapted: Program, model: Path) -> None:
    assert shown(adapted) == [(0, 1.0)]
    full = say(adapted)
    with Program(*serve_checkpoint(model)) as base:
        plain = say(base)
        assert base.get(ROUTE) == (200, [])
        assert base.post(ROUTE, [{"id": 0, "scale": 1}]) == (200, {"success": True})
    assert full != plain
    scale(adapted, 0.0)
    assert shown(adapted) == [(0, 0.0)]
    assert say(adapted) == plain
    scale(adapted, 0.5)
    assert say(adapted) not in (full, plain)
    scale(adapted, 1.0)
    assert say(adapted) == full
    assert adapted.post(ROUTE, []) == (200, {"success": True})
    assert say(adapted) == plain


def test_a_request_that_runs_keeps_its_scales(adapted: Program) -> None:
    scale(adapted, 1.0)
    wanted = say(adapted, 400)
    with Stream(adapted.url, PROMPT, max_tokens=400) as stream:
        begun = stream.pieces(3)
        scale(adapted, 0.0)
        assert adapted.get("/slots")[1][0]["is_processing"], "it was over before the change"
        assert begun + stream.rest().text == wanted
    assert say(adapted, 400) != wanted


def test_a_worker_that_starts_anew_has_the_scales_of_the_last_change(adapted: Program) -> None:
    scale(adapted, 1.0)
    full = say(adapted)
    scale(adapted, 0.0)
    plain = say(adapted)
    assert plain != full
    restarts = adapted.health()["worker"]["restarts"]
    os.kill(adapted.health()["worker"]["pid"], signal.SIGKILL)
    adapted.await_health(status="ok", worker__restarts=restarts + 1)
    assert shown(adapted) == [(0, 0.0)]
    assert say(adapted) == plain


def test_merged_adapters_cannot_be_scaled(adapter: Path, tiny: Path) -> None:
    words = ("--lora-scaled", f"{adapter}:0.5", "--lora-fuse")
    with Program(*serve_checkpoint(tiny, *words)) as fused:
        before = say(fused)
        assert fused.post(ROUTE, [{"id": 0, "scale": 0.5}]) == (200, {"success": True})
        status, refused = fused.post(ROUTE, [{"id": 0, "scale": 1}])
        assert (status, refused["error"]["type"]) == (501, "not_supported_error")
        assert shown(fused) == [(0, 0.5)]
        assert say(fused) == before
