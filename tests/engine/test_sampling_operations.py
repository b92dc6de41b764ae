"""What a GPU is given to do: how many operations a step has, and that they draw the same tokens.

The way of a GPU is taken by calling the device one; a step that is only built runs nowhere.
"""

import io
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.sampling import penalties
from mlxcel.engine.sampling.batch import BatchSampler, Drawn
from mlxcel.engine.sampling.group import inverted
from mlxcel.engine.sampling.history import History
from mlxcel.engine.sampling.state import RowState, initial_state

import mlx.core as mx  # isort: skip

VOCAB = 151_936
DEFAULTS = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
PENALISED = msgspec.structs.replace(DEFAULTS, repetition_penalty=1.1)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "default_device", lambda: SimpleNamespace(type=mx.gpu))


def step(params: SamplingParams, logits: mx.array) -> tuple[Drawn, History, RowState]:
    """The second step of rows with these parameters: what is made once has been made."""
    rows = [msgspec.structs.replace(params, seed=seed) for seed in range(logits.shape[0])]
    history, state = History(), RowState()
    for place, row in enumerate(rows):
        history.join([(place * 7 + i * i) % 50 for i in range(80)], row.history_width)
        state.join(initial_state(row))
    mx.eval(history.tokens, state.values)
    sampler = BatchSampler(rows, logits.shape[1])
    for position in range(2):
        drawn = sampler(logits, [position] * len(rows), history.tokens, state.values)
    history.push(drawn.tokens)
    return drawn, history, state


def said(params: SamplingParams, logits: mx.array) -> list[int]:
    return cast(list[int], step(params, logits)[0].tokens.tolist())


def operations(*arrays: mx.array) -> int:
    graph = io.StringIO()
    mx.export_to_dot(graph, *arrays)
    return graph.getvalue().count("shape=rectangle")


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize(
    ("params", "most"),
    [
        pytest.param(SamplingParams(temperature=0), 5, id="greedy"),
        pytest.param(SamplingParams(temperature=0, repetition_penalty=1.1), 26, id="penalised"),
        pytest.param(SamplingParams(temperature=0.8), 12, id="temperature"),
        pytest.param(DEFAULTS, 40, id="defaults"),
        pytest.param(PENALISED, 60, id="defaults-penalised"),
        pytest.param(SamplingParams(top_p=0.95), 125, id="top-p"),
    ],
)
def test_a_step_has_few_operations(params: SamplingParams, most: int) -> None:
    """All nodes of the graph, views too."""
    logits = mx.zeros((16, VOCAB), dtype=mx.bfloat16)
    mx.eval(logits)
    drawn, history, state = step(params, logits)
    assert drawn.state is state.values
    assert operations(drawn.tokens, drawn.state, history.tokens) <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    "params",
    [
        pytest.param(SamplingParams(temperature=0), id="greedy"),
        pytest.param(SamplingParams(temperature=0.8), id="temperature"),
        pytest.param(PENALISED, id="defaults-penalised"),
        pytest.param(SamplingParams(top_k=400, typical_p=0.9), id="typical-in-a-head"),
        pytest.param(SamplingParams(top_p=0.9), id="top-p"),
    ],
)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
def test_the_way_of_a_gpu_draws_the_same(
    params: SamplingParams, dtype: mx.Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(0).normal(scale=2.5, size=(12, 5003)).astype(np.float32)
    values[3], values[4] = np.nan, -np.inf
    logits = mx.array(values).astype(dtype)
    want = said(params, logits)
    monkeypatch.setattr(mx, "default_device", lambda: SimpleNamespace(type=mx.gpu))
    assert said(params, logits) == want
    assert want[3:5] == [-1, -1]
    assert min(want[:3] + want[5:]) >= 0


@pytest.mark.slow
@pytest.mark.usefixtures("as_on_a_gpu")
def test_no_draw_of_a_gpu_reaches_a_place_without_weight() -> None:
    """Not even at 1, where the rounding of sums may lead."""
    weights = np.zeros((1, 5000), dtype=np.float32)
    weights[0, 100:4000] = np.random.default_rng(0).random(3900) ** 8 + 1e-9
    for draw in (0.0, 0.5, 1.0):
        place, _ = inverted(mx.array(weights), mx.array([[draw]]))
        assert weights[0, cast(int, place.item())] > 0
    assert inverted(mx.array([[0.2, 0.8, 0.0]]), mx.array([[1.0]]))[0].item() == 1


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(SamplingParams(), id="temperature"),
        pytest.param(DEFAULTS, id="head"),
        pytest.param(SamplingParams(top_k=1000), id="wide-head"),
        pytest.param(SamplingParams(top_p=0.9), id="whole"),
    ],
)
@pytest.mark.parametrize("vocab", [300, 5003])
def test_one_nan_among_numbers_breaks_its_row(params: SamplingParams, vocab: int) -> None:
    logits = np.random.default_rng(1).normal(size=(3, vocab)).astype(np.float32)
    logits[1, 57] = np.nan
    tokens = said(params, mx.array(logits))
    assert [token == -1 for token in tokens] == [False, True, False]


@pytest.mark.parametrize("windows", [(64, 64), (5, 40)], ids=str)
def test_wide_histories_are_counted_as_narrow_ones(
    windows: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(4)
    history = mx.array(random.integers(-1, 20, size=(2, 64)).astype(np.int32))
    logits = mx.array(random.normal(size=(2, 50)).astype(np.float32))
    penalised = SamplingParams(repetition_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.4)
    rows = [msgspec.structs.replace(penalised, penalty_window=width) for width in windows]
    narrow = penalties.Penalties(rows)(logits, history)
    monkeypatch.setattr(penalties, "PAIRED", 0)
    wide = penalties.Penalties(rows)(logits, history)
    np.testing.assert_array_equal(np.array(narrow), np.array(wide))
    assert not np.array_equal(np.array(narrow), np.array(logits))
