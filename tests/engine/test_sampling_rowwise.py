"""The arithmetic over the vocabulary."""

import numpy as np
import pytest

from mlxcel.engine.sampling.group import inverted
from mlxcel.engine.sampling.rowwise import exponential, padded, peak, total

import mlx.core as mx  # isort: skip


def test_exponential_is_that_of_numpy() -> None:
    values = np.linspace(-85, 0, 200_001, dtype=np.float32)
    want = np.exp(values.astype(np.float64))
    np.testing.assert_allclose(np.array(exponential(mx.array(values))), want, rtol=1e-5)


def test_exponential_of_what_is_banned_is_nothing() -> None:
    got = np.array(exponential(mx.array([-np.inf, -1e30, -200.0, 0.0])))
    assert got.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("width", [1, 5, 32, 4096])
def test_sums_and_maxima_of_rows(width: int) -> None:
    values = np.random.default_rng(width).normal(size=(3, width)).astype(np.float32)
    np.testing.assert_allclose(
        np.array(total(mx.array(values)))[:, 0], values.sum(-1), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_array_equal(np.array(peak(mx.array(values)))[:, 0], values.max(-1))


def test_padding_reaches_whole_lanes() -> None:
    got = padded(mx.ones((2, 33)), -mx.inf)
    assert got.shape == (2, 64)
    assert mx.all(got[:, :33] == 1).item()
    assert mx.all(got[:, 33:] == -mx.inf).item()


def test_no_draw_reaches_a_place_without_weight() -> None:
    """Not at 0, not at the largest number below 1, not at 1, where rounding may lead."""
    weights = np.zeros((1, 5000), dtype=np.float32)
    weights[0, 100:4000] = np.random.default_rng(0).random(3900) ** 8 + 1e-9
    for draw in (0.0, 0.5, 1 - 2.0**-24):
        place, whole = inverted(mx.array(weights), mx.array([[draw]]))
        assert whole.item() > 0
        assert weights[0, place.item()] > 0
    assert inverted(mx.array([[0.2, 0.8, 0.0]]), mx.array([[1 - 2.0**-24]]))[0].item() == 1
