"""What a request adds to the counts and to the times."""

import pytest

from mlxcel.core.events import Timings, Usage
from mlxcel.metrics.histogram import Histogram, buckets_of
from mlxcel.metrics.meter import RequestMeter

TIMINGS = Timings(queued_ms=4, prompt_ms=16, decode_ms=50, total_ms=80)


def usage(*, said: int = 6, cached: int | None = 7) -> Usage:
    return Usage(prompt_tokens=10, completion_tokens=said, cached_tokens=cached)


def counts(histogram: Histogram) -> int:
    return histogram.buckets()[-1][1]


def test_a_counted_request() -> None:
    meter = RequestMeter()
    for cached in (7, None):
        meter.answered(usage(cached=cached), TIMINGS, is_counted=True)
    assert (meter.requests, meter.prompt_tokens, meter.completion_tokens) == (2, 20, 12)
    assert meter.wall_s == pytest.approx(0.16)
    assert (meter.read_tokens, meter.cached_tokens, meter.said_tokens) == (13, 7, 12)
    assert (meter.prompt_s, meter.decode_s) == pytest.approx((0.032, 0.1))
    assert (meter.ttft_ms.sum, meter.queue_ms.sum) == (40, 8)
    assert (meter.decode_tok_s.sum, meter.token_ms.sum) == (200, 20)


def test_one_that_is_not_counted_is_in_the_times_alone() -> None:
    meter = RequestMeter()
    meter.answered(usage(), TIMINGS, is_counted=False)
    assert (meter.requests, meter.prompt_tokens, meter.completion_tokens, meter.wall_s) == (0,) * 4
    assert (meter.read_tokens, meter.said_tokens, counts(meter.ttft_ms)) == (3, 6, 1)


@pytest.mark.parametrize(
    ("said", "decode_ms", "observed"),
    [
        pytest.param(0, 0.0, (1, 0, 0, 0), id="nothing-said"),
        pytest.param(1, 0.0, (1, 1, 0, 0), id="one-token-has-no-speed"),
        pytest.param(2, 0.0, (1, 1, 0, 0), id="too-fast-to-be-timed"),
        pytest.param(2, 5.0, (1, 1, 1, 1), id="two-tokens"),
    ],
)
def test_only_what_took_place_is_observed(
    said: int, decode_ms: float, observed: tuple[int, ...]
) -> None:
    meter = RequestMeter()
    timings = Timings(queued_ms=1, prompt_ms=1, decode_ms=decode_ms)
    meter.answered(usage(said=said), timings, is_counted=True)
    times = (meter.queue_ms, meter.ttft_ms, meter.decode_tok_s, meter.token_ms)
    assert tuple(map(counts, times)) == observed


def test_a_value_on_an_edge_belongs_below_it() -> None:
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 1.1, 2.5, 3):
        histogram.observe(value)
    assert histogram.buckets() == [("1", 2), ("2.5", 4), ("+Inf", 5)]
    assert histogram.sum == pytest.approx(8.1)


def test_classes_that_nobody_counted_are_empty() -> None:
    assert list(buckets_of((1, 2), ())) == [("1", 0), ("2", 0), ("+Inf", 0)]
