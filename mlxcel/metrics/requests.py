"""The families of requests: how many, and how long they took."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from mlxcel.metrics.families import counter, histogram
from mlxcel.metrics.meter import RequestMeter


def request_families(meter: RequestMeter) -> Iterator[Metric]:
    for name, about, value in (
        ("requests_total", "Requests that were answered.", meter.requests),
        ("prompt_tokens_total", "Tokens of their prompts.", meter.prompt_tokens),
        ("completion_tokens_total", "Tokens of their answers.", meter.completion_tokens),
        (
            "generation_time_seconds_total",
            "Their time from arrival to the last token.",
            meter.wall_s,
        ),
        ("requests_cancelled_total", "Requests whose client left.", meter.cancels),
        ("requests_failed_total", "Requests that began and failed.", meter.failures),
    ):
        yield counter(f"mlxcel_{name}", about, value)


def time_families(meter: RequestMeter) -> Iterator[Metric]:
    for name, about, source in (
        ("ttft_ms", "Milliseconds to the first token: queue and prompt.", meter.ttft_ms),
        ("decode_tok_s", "Tokens per second after the first.", meter.decode_tok_s),
        ("queue_ms", "Milliseconds until the prompt is begun.", meter.queue_ms),
        ("time_per_output_token_ms", "Milliseconds per token after the first.", meter.token_ms),
    ):
        yield histogram(f"mlxcel_request_{name}", about, source)
