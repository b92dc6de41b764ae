import pytest

from mlxcel.link.backoff import Backoff


@pytest.mark.parametrize(
    ("healthy_s", "delays_s"),
    [
        pytest.param([0, 0, 0, 0, 0], [1, 2, 4, 5, 5], id="grows-up-to-the-maximum"),
        pytest.param([0, 0, 59, 0], [1, 2, 4, 5], id="a-short-life-resets-nothing"),
        pytest.param([0, 0, 60, 0], [1, 2, 1, 2], id="a-long-life-starts-anew"),
    ],
)
def test_delay_follows_the_failures_in_a_row(healthy_s: list[float], delays_s: list[float]) -> None:
    backoff = Backoff(initial_s=1, factor=2, max_s=5, reset_s=60)
    assert [backoff.delay_after(healthy) for healthy in healthy_s] == delays_s


def test_initial_delay_is_never_above_the_maximum() -> None:
    assert Backoff(initial_s=9, factor=2, max_s=5, reset_s=60).delay_after(0) == 5
