"""The families of llama-server, by its names."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from mlxcel.core.status import WorkerStats
from mlxcel.metrics.families import counter, gauge
from mlxcel.metrics.meter import RequestMeter
from mlxcel.metrics.steady import Steady

PREFIX = "llamacpp:"


class Pace:
    """Tokens per second since the scrape before. Owned by the event loop."""

    def __init__(self) -> None:
        self._tokens = 0
        self._seconds = 0.0

    def since(self, tokens: int, seconds: float) -> float:
        """Of two running totals; 0 when nothing was timed."""
        took = seconds - self._seconds
        return (tokens - self._tokens) / took if took > 0 else 0.0

    def mark(self, tokens: int, seconds: float) -> None:
        """The next scrape counts from here."""
        self._tokens, self._seconds = tokens, seconds


class LlamaFamilies:
    def __init__(self, meter: RequestMeter) -> None:
        self._meter = meter
        self._reading = Pace()
        self._saying = Pace()
        self._longest = 0

    def families(self, stats: WorkerStats, steady: Steady, *, is_scrape: bool) -> list[Metric]:
        """`is_scrape`: the averages begin anew."""
        self._longest = max(self._longest, stats.longest)
        made = [*self._counters(steady), *self._gauges(stats, steady)]
        if is_scrape:
            self._reading.mark(self._meter.read_tokens, self._meter.prompt_s)
            self._saying.mark(self._meter.said_tokens, self._meter.decode_s)
        return made

    def _counters(self, steady: Steady) -> Iterator[Metric]:
        meter = self._meter
        for name, about, value in (
            ("prompt_tokens_total", "Prompt tokens that were read.", meter.read_tokens),
            (
                "prompt_tokens_cached_total",
                "Prompt tokens that were reused.",
                meter.cached_tokens,
            ),
            ("prompt_seconds_total", "Time prompts took.", meter.prompt_s),
            ("tokens_predicted_total", "Tokens of answers.", meter.said_tokens),
            ("tokens_predicted_seconds_total", "Time answers took.", meter.decode_s),
            ("n_decode_total", "Decode steps.", steady["decode_steps"]),
            ("n_tokens_max", "Tokens of the longest row, prompt and answer.", self._longest),
            ("spec_decode_num_draft_tokens_total", "Tokens drafted.", steady["draft_proposed"]),
            (
                "spec_decode_num_accepted_tokens_total",
                "Drafted tokens that were kept.",
                steady["draft_accepted"],
            ),
            ("spec_decode_num_drafts_total", "Drafts.", steady["draft_rounds"]),
        ):
            yield counter(PREFIX + name, about, value)

    def _gauges(self, stats: WorkerStats, steady: Steady) -> Iterator[Metric]:
        meter, steps = self._meter, steady["decode_steps"]
        for name, about, value in (
            (
                "prompt_tokens_seconds",
                "Prompt tokens read per second, since the scrape before.",
                self._reading.since(meter.read_tokens, meter.prompt_s),
            ),
            (
                "predicted_tokens_seconds",
                "Answer tokens per second, since the scrape before.",
                self._saying.since(meter.said_tokens, meter.decode_s),
            ),
            ("requests_processing", "Requests in a slot.", stats.active),
            ("requests_deferred", "Requests that wait.", stats.waiting),
            (
                "n_busy_slots_per_decode",
                "Rows per decode step, on average.",
                steady["decode_rows"] / steps if steps else 0.0,
            ),
        ):
            yield gauge(PREFIX + name, about, value)
