"""Whether a wide step is byte for byte what narrow ones are; and what is known unmeasured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.utils import load_model

from mlxcel.engine.draft.mtp.hardware import hardware_name, is_new_apple, static_default
from mlxcel.engine.draft.mtp.probe import differs
from mlxcel.engine.draft.taps import Tapped
from mlxcel.engine.kv.ragged import RaggedKV
from mlxcel.worker.precision import Backend
from tests.tiny.families import hybrid_network

WIDTH = 4
LAYERS = 2


@pytest.fixture
def network(tiny: Path) -> nn.Module:
    """In 16 bits, which MLX multiplies itself: what a BLAS does depends on the rows it is given."""
    made = load_model(tiny)[0]
    made.set_dtype(mx.bfloat16)
    return made


class Changed(nn.Module):
    """Says something else in wide steps, or narrow ones, after so many tokens at least."""

    def __init__(
        self, network: nn.Module, span: int, behind: int, change: Callable[[mx.array], mx.array]
    ) -> None:
        super().__init__()
        self.network = network
        self.span, self.behind, self.change = span, behind, change

    def make_cache(self) -> list[Any]:
        return make_prompt_cache(self.network)

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        is_meant = inputs.shape[1] == self.span and cache[0].offset >= self.behind
        logits = self.network(inputs, cache=cache)
        return self.change(logits) if is_meant else logits


def raised(at: int, by: float) -> Callable[[mx.array], mx.array]:
    return lambda logits: logits.at[0, at, 7].add(mx.array(by, logits.dtype))


def a_bit_more(logits: mx.array) -> mx.array:
    """The last bit of one number."""
    bits = logits.view(mx.uint16)
    return bits.at[0, 0, 7].add(mx.array(1, mx.uint16)).view(logits.dtype)


def test_the_tiny_model_is_exact(network: nn.Module) -> None:
    assert differs(network, WIDTH) is None


@pytest.mark.parametrize("taps", [[], [0, 1]], ids=["norm", "layers"])
def test_so_it_is_with_taps(network: nn.Module, taps: list[int]) -> None:
    assert differs(Tapped(network, taps), WIDTH) is None
    assert differs(Tapped(network, taps), WIDTH, kv=RaggedKV(LAYERS + 1, 4)) is None


def test_a_scan_over_several_tokens_rounds_otherwise() -> None:
    assert "logits differ" in str(differs(hybrid_network(), WIDTH))


@pytest.mark.parametrize("behind", [0, 24, 67])
def test_every_input_counts(network: nn.Module, behind: int) -> None:
    place = {0: "input 1 of 3 (5 tokens", 24: "input 2 of 3 (24", 67: "input 3 of 3 (67"}[behind]
    found = differs(Changed(network, WIDTH, behind, raised(2, 0.5)), WIDTH)
    assert found is not None
    assert found.startswith(place)
    assert found.endswith(
        f"then 4): 1 of {264 * WIDTH} logits differ, by 0.5 at most, the first of them at token 3"
    )


def test_the_last_bit_counts(network: nn.Module) -> None:
    assert differs(Changed(network, WIDTH, 0, a_bit_more), WIDTH) is not None


def test_the_sign_of_zero_counts_and_nan_is_itself(network: nn.Module) -> None:
    def every(value: float) -> Callable[[mx.array], mx.array]:
        return lambda logits: mx.full(logits.shape, value)

    always = Changed(network, WIDTH, 0, every(float("nan")))
    both = Changed(always, 1, 0, every(float("nan")))
    assert differs(both, WIDTH) is None
    zeros = Changed(Changed(network, WIDTH, 0, every(0.0)), 1, 0, every(-0.0))
    assert "differ, by 0 at most" in str(differs(zeros, WIDTH))


def test_what_the_rows_decode_in_is_tried_out(network: nn.Module) -> None:
    class Off(RaggedKV):
        def begin(self, span: int = 1) -> None:
            super().begin(span)
            if span > 1 and self.common is not None:
                self.common += 1  # where its tokens are said to stand

    assert differs(network, WIDTH, kv=RaggedKV(LAYERS, 4)) is None
    kv = Off(LAYERS, 4)
    assert differs(network, WIDTH, kv=kv) is not None
    assert not len(kv)


def test_what_texts_are_read_into_is_tried_out(network: nn.Module) -> None:
    class Off(KVCache):
        def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
            return super().update_and_fetch(keys, values * (1 + (keys.shape[2] == WIDTH)))

    assert differs(network, WIDTH, fresh=lambda: [Off() for _ in range(LAYERS)]) is not None


@pytest.mark.parametrize(
    ("architecture", "is_new"),
    [
        ("applegpu_g13g", False),
        ("applegpu_g14d", False),
        ("applegpu_g15s", True),
        ("applegpu_g16p", True),
        ("sm_90", False),
        ("", False),
    ],
)
def test_generations_of_apples(
    architecture: str, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_new_apple(architecture) == is_new
    info = {"architecture": architecture, "device_name": "Some"}
    monkeypatch.setattr(mx, "device_info", lambda: info)
    assert static_default(Backend.METAL, is_batchable=True) == is_new
    assert hardware_name() == f"Some ({architecture})"


@pytest.mark.parametrize("backend", Backend)
def test_rows_that_cannot_be_batched_draft(backend: Backend) -> None:
    assert static_default(backend, is_batchable=False)


@pytest.mark.parametrize("backend", [Backend.CPU, Backend.CUDA])
def test_rows_that_can_be_batched_do_not(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "device_info", lambda: {"architecture": "applegpu_g15s"})
    assert not static_default(backend, is_batchable=True)
