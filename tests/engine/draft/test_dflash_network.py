"""The forward of a DFlash head against its formulae, in numpy: everything is computed anew from
all context rows, with masks that are written out (contract: speculative 9)."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.dflash import context
from mlxcel.engine.draft.dflash.context import Window
from mlxcel.engine.draft.dflash.drafter import DFlash
from mlxcel.engine.draft.draws import OwnDraws
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.precision import Backend
from tests.engine.draft.dflash_pair import GREEDY, drafter_of, load_head, load_target
from tests.tiny.dflash import CONFIG, HIDDEN, build_head, build_target, head_weights

FULL, SLIDING = "full_attention", "sliding_attention"
BLOCK: int = CONFIG["block_size"]
MASK: int = CONFIG["dflash_config"]["mask_token_id"]
WINDOW = 9
LAST = 65
MIXED = {"layer_types": [SLIDING, FULL], "sliding_window": WINDOW}
CLOSE = 1e-4
"""float32 against float64; logits are about 10."""

Array = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_target(build_target(tmp_path_factory.mktemp("dflash") / "target"))


class Reference:
    """Of one head, with float64 numbers."""

    def __init__(self, model: LoadedModel, **config: Any) -> None:
        told = CONFIG | config
        self.told = told | told.get("dflash_config", {})
        self.weights = {name: _wide(array) for name, array in head_weights(**config).items()}
        self.embedding = _wide(model.network.model.embed_tokens.weight)
        self.output = _wide(model.network.lm_head.weight)

    def logits(self, rows: Array, first: int = 1) -> Array:
        """`rows` `[n, hidden]`, all that the target has shown -> `[block - first, vocab]`."""
        x = self.embedding[[LAST] + [MASK] * (BLOCK - 1)]
        for n in range(self.told["num_hidden_layers"]):
            name = f"layers.{n}."
            x = x + self._attend(n, self._norm(x, name + "input_layernorm"), rows)
            x = x + self._mlp(name + "mlp.", self._norm(x, name + "post_attention_layernorm"))
        logits = self._norm(x, "norm")[first:] @ self.output.T
        cap = self.told.get("final_logit_softcapping")
        return logits if cap is None else cap * np.tanh(logits / cap)

    def _attend(self, n: int, x: Array, rows: Array) -> Array:
        name = f"layers.{n}.self_attn."
        start = len(rows)
        block = np.arange(start, start + BLOCK)
        every = np.arange(start + BLOCK)
        both = np.concatenate([rows, x])
        queries = self._turned(self._heads(x, name + "q"), block)
        keys = self._turned(self._heads(both, name + "k"), every)
        values = self._split(both @ self.weights[name + "v_proj.weight"].T)
        group = len(queries) // len(keys)
        keys, values = (np.repeat(one, group, axis=0) for one in (keys, values))
        scores = queries @ keys.swapaxes(1, 2) * self.told["head_dim"] ** -0.5
        scores = np.where(self._mask(n, block, every, start), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        seen = weights / weights.sum(-1, keepdims=True) @ values
        return _wide(
            seen.swapaxes(0, 1).reshape(BLOCK, -1) @ self.weights[name + "o_proj.weight"].T
        )

    def _mask(self, n: int, block: Array, every: Array, start: int) -> Array:
        """`[block, all]`."""
        allowed = np.ones((BLOCK, len(every)), bool)
        if self.told["layer_types"][n] == SLIDING:
            allowed[:, : max(0, start - (self.told["sliding_window"] - 1))] = False
            if self.told.get("is_causal", True):
                allowed &= every[None] <= block[:, None]
        return allowed

    def _heads(self, x: Array, name: str) -> Array:
        return self._norm(self._split(x @ self.weights[f"{name}_proj.weight"].T), f"{name}_norm")

    def _split(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.told["head_dim"]).swapaxes(0, 1)

    def _norm(self, x: Array, name: str) -> Array:
        size = np.sqrt((x * x).mean(-1, keepdims=True) + self.told["rms_norm_eps"])
        return _wide(x / size * self.weights[f"{name}.weight"])

    def _turned(self, x: Array, positions: Array) -> Array:
        dim = self.told["head_dim"]
        angles = positions[:, None] * self.told["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
        scaling = self.told.get("rope_scaling")
        if scaling:
            angles = angles / scaling["factor"]
        pairs = x[..., 0::2] + 1j * x[..., 1::2]
        if self.told.get("rope_is_neox_style", True):
            pairs = x[..., : dim // 2] + 1j * x[..., dim // 2 :]
        turned = pairs * np.exp(1j * angles)
        if self.told.get("rope_is_neox_style", True):
            return np.concatenate([turned.real, turned.imag], axis=-1)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    def _mlp(self, name: str, x: Array) -> Array:
        gate, up, down = (
            self.weights[f"{name}{one}_proj.weight"] for one in ("gate", "up", "down")
        )
        opened = x @ gate.T
        return _wide((opened / (1 + np.exp(-opened)) * (x @ up.T)) @ down.T)


def _wide(array: Any) -> Array:
    return np.array(array, np.float64)


def some_rows(count: int, seed: int = 0) -> mx.array:
    return mx.random.normal((count, HIDDEN), key=mx.random.key(seed))


def found(drafter: DFlash) -> Any:
    return np.array(drafter._blocks.logits(LAST, drafter._contexts, BLOCK - 1))


def after(head: DraftHead, rows: mx.array, cuts: Sequence[int] = ()) -> Any:
    """The logits behind rows that came in the pieces between `cuts`."""
    drafter = drafter_of(head)
    for start, stop in pairwise([0, *cuts, rows.shape[0]]):
        drafter.look(rows[start:stop])
    return found(drafter)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="full"),
        pytest.param(MIXED, id="sliding"),
        pytest.param(MIXED | {"is_causal": False}, id="sliding-not-causal"),
        pytest.param({"rope_is_neox_style": False}, id="interleaved"),
        pytest.param({"rope_scaling": {"rope_type": "linear", "factor": 3.0}}, id="scaled"),
        pytest.param({"final_logit_softcapping": 2.0}, id="softcap"),
        pytest.param(MIXED | {"sliding_window": 1}, id="window-of-one"),
        pytest.param({"sliding_window": WINDOW}, id="a-window-that-no-layer-has"),
    ],
)
@pytest.mark.parametrize("count", [0, 1, WINDOW - 2, WINDOW - 1, WINDOW, 40])
def test_logits_are_those_of_the_formulae(
    model: LoadedModel, tmp_path: Path, config: dict[str, Any], count: int
) -> None:
    head = load_head(build_head(tmp_path / "head", **config), model)
    reference = Reference(model, **config)
    rows = some_rows(count)
    drafter = drafter_of(head)
    if count:
        drafter.look(rows)
    assert abs(found(drafter) - reference.logits(_wide(rows))).max() < CLOSE


@pytest.mark.parametrize("config", [{}, MIXED], ids=["full", "sliding"])
def test_rows_one_by_one_or_at_once(
    model: LoadedModel, tmp_path: Path, config: dict[str, Any]
) -> None:
    head = load_head(build_head(tmp_path / "head", **config), model)
    rows = some_rows(30)
    at_once = after(head, rows)
    for cuts in (range(1, 30), (1, 2, 25), (20, 21)):
        assert abs(after(head, rows, cuts) - at_once).max() < 1e-5


@pytest.mark.parametrize("backend", [Backend.CPU, Backend.CUDA])
@pytest.mark.parametrize("config", [{}, MIXED], ids=["full", "sliding"])
def test_many_rounds(
    model: LoadedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    backend: Backend,
) -> None:
    """Also as CUDA has it: with room behind a mask."""
    monkeypatch.setattr(context, "current_backend", lambda: backend)
    """Blocks in between leave nothing behind; pieces longer than the window come early and late."""
    head = load_head(build_head(tmp_path / "head", **config), model)
    reference = Reference(model, **config)
    numbers = random.Random(4)
    drafter = drafter_of(head)
    shown = np.zeros((0, HIDDEN))
    for n in range(60):
        rows = some_rows(numbers.choice([1, 2, 5, 1, 14]), seed=n)
        drafter.look(rows)
        shown = np.concatenate([shown, _wide(rows)])
        if n % 6 == 0 or n == 59:
            assert abs(found(drafter) - reference.logits(shown)).max() < CLOSE
        else:
            found(drafter)
    assert len(shown) > 200


@pytest.mark.parametrize("config", [{}, MIXED], ids=["full", "sliding"])
def test_every_layer_counts_all_positions(
    model: LoadedModel, tmp_path: Path, config: dict[str, Any]
) -> None:
    """Also those of which it holds no rows; a block is not counted."""
    drafter = drafter_of(load_head(build_head(tmp_path / "head", **config), model))
    total = 0
    for count in (3, 20, 1, 8):
        drafter.look(some_rows(count))
        total += count
        found(drafter)
        assert [context.offset for context in drafter._contexts] == [total, total]


def test_a_window_does_not_read_what_it_would_not_hold() -> None:
    window = Window(WINDOW)
    assert [window.skip(count) for count in (3, WINDOW - 1, WINDOW, 30)] == [0, 0, 1, 22]
    assert window.offset == 23


def test_masks_differ_only_by_position(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = load_head(build_head(tmp_path / "head"), model)
    rows = some_rows(12)
    logits = after(head, rows)
    assert all(abs(one - other).max() > 0.1 for one, other in pairwise(logits))
    for layer in head.network.layers:
        monkeypatch.setattr(layer.self_attn, "rope", lambda x, offset: x)
    nowhere = after(head, rows)
    assert abs(nowhere - nowhere[0]).max() < 1e-5


def test_what_is_wanted_of_a_block_does_not_change_it(model: LoadedModel, tmp_path: Path) -> None:
    head = load_head(build_head(tmp_path / "head"), model)
    drafter = drafter_of(head)
    drafter.hear(range(8))
    drafter.look(some_rows(7))
    whole = drafter.propose(BLOCK - 1)
    assert len(whole) == BLOCK - 1
    assert [drafter.propose(n) for n in (1, 3)] == [whole[:1], whole[:3]]
    assert drafter.propose(BLOCK + 9) == whole


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_it_draws_as_its_row_does(model: LoadedModel, tmp_path: Path, temperature: float) -> None:
    """With the numbers of the positions at which its proposals would stand in the answer."""
    head = load_head(build_head(tmp_path / "head"), model)
    sampling = SamplingParams(temperature=temperature, seed=11)
    drafter = drafter_of(head, sampling)
    drafter.hear([1, 2, 3, 4])
    drafter.hear([])
    drafter.look(some_rows(5))
    drafter.hear([5, LAST])
    drawn = OwnDraws(sampling, model.vocab_size)(mx.array(found(drafter)), 2)
    assert drafter.propose(BLOCK - 1) == drawn.tolist()


def test_odds_are_told_where_the_rule_wants_them(model: LoadedModel, tmp_path: Path) -> None:
    """Those of the last proposal, of rows that draw at all."""
    head = load_head(build_head(tmp_path / "head"), model, stochastic_accept=True)
    drafter = drafter_of(head, SamplingParams(temperature=0.5, seed=1))
    drafter.hear([1, 2, LAST])
    drafter.look(some_rows(2))
    drafter.propose(2)
    drafter.propose(4)
    assert drafter.odds is not None
    expected = mx.softmax(mx.array(found(drafter))[:4] / 0.5, axis=-1)
    assert mx.allclose(drafter.odds, expected, atol=1e-5).item()
    for one, sampling in ((head, GREEDY), (load_head(head.folder, model), SamplingParams())):
        other = drafter_of(one, sampling)
        other.hear([LAST])
        other.propose(3)
        assert other.odds is None


def test_a_missing_row_is_no_quiet_mistake(model: LoadedModel, tmp_path: Path) -> None:
    drafter = drafter_of(load_head(build_head(tmp_path / "head"), model))
    drafter.hear([1, 2, 3])
    drafter.look(some_rows(1))
    with pytest.raises(AssertionError, match="a row of every position"):
        drafter.propose(1)
