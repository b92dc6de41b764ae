"""What became of the requests: counts and times, fed by the handler of the generation routes."""

from mlxcel.core.events import Timings, Usage
from mlxcel.metrics.histogram import Histogram

# The first two are fixed by the interface.
TTFT_MS = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
DECODE_TOK_S = (1, 5, 10, 25, 50, 75, 100, 150, 200, 300, 500, 1000)
QUEUE_MS = (1, 5, 10, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000)
TOKEN_MS = (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 200, 500, 1000)


class RequestMeter:
    """Owned by the event loop. Counts since the server started; a worker that dies changes
    nothing here."""

    def __init__(self) -> None:
        # Requests that are counted.
        self.requests = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.wall_s = 0.0
        # All that were answered.
        self.read_tokens = 0
        self.cached_tokens = 0
        self.prompt_s = 0.0
        self.said_tokens = 0
        self.decode_s = 0.0
        self.cancels = 0
        self.failures = 0
        self.ttft_ms = Histogram(TTFT_MS)
        self.decode_tok_s = Histogram(DECODE_TOK_S)
        self.queue_ms = Histogram(QUEUE_MS)
        self.token_ms = Histogram(TOKEN_MS)

    def answered(self, usage: Usage, timings: Timings, *, is_counted: bool) -> None:
        """One that has finished well. Streams of the two oldest dialects are not `is_counted`:
        they are in the times, not among the requests."""
        if is_counted:
            self.requests += 1
            self.prompt_tokens += usage.prompt_tokens
            self.completion_tokens += usage.completion_tokens
            self.wall_s += timings.total_ms / 1000
        self._count_tokens(usage, timings)
        self._observe(usage, timings)

    def cancelled(self) -> None:
        """The client has left before the end."""
        self.cancels += 1

    def failed(self) -> None:
        """It was accepted, and then ended with an error."""
        self.failures += 1

    def _count_tokens(self, usage: Usage, timings: Timings) -> None:
        cached = 0 if usage.cached_tokens is None else usage.cached_tokens
        self.read_tokens += usage.prompt_tokens - cached
        self.cached_tokens += cached
        self.prompt_s += timings.prompt_ms / 1000
        self.said_tokens += usage.completion_tokens
        self.decode_s += timings.decode_ms / 1000

    def _observe(self, usage: Usage, timings: Timings) -> None:
        self.queue_ms.observe(timings.queued_ms)
        if usage.completion_tokens == 0:
            return
        self.ttft_ms.observe(timings.queued_ms + timings.prompt_ms)
        # Decoding is timed from the first token to the last: it made one token less.
        made = usage.completion_tokens - 1
        if made > 0 and timings.decode_ms > 0:
            self.decode_tok_s.observe(made * 1000 / timings.decode_ms)
            self.token_ms.observe(timings.decode_ms / made)
