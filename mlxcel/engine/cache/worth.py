"""Whether bringing KV from disk takes less time than computing it; both are measured.

A laptop computes hundreds of tokens a second and reads the KV of tens of thousands; a data-centre
GPU with a small model is the other way round (one H200, Qwen3-0.6B shape: 4,096 tokens are read in
0.05 s, their KV of 470 MB in 0.8 s).
"""

WEIGHT = 0.3
"""Of the newest measurement in the running mean."""
TRIED_AGAIN = 32
"""Refusals after which the disk is measured again: it may have been busy the last time."""
LEAST_TOKENS = 64
"""A shorter chunk measures the start of a forward, not its speed."""

SHORTEST_S = 1e-6


class Worth:
    """Owned by the tick."""

    def __init__(self, token_bytes: int) -> None:
        self._token_bytes = token_bytes
        self._compute_s: float | None = None
        """Seconds a token."""
        self._read_s: float | None = None
        """Seconds a byte."""
        self._refused = 0

    def computed(self, tokens: int, seconds: float) -> None:
        """A prompt, or a chunk of one, was read by the model."""
        if tokens >= LEAST_TOKENS:
            self._compute_s = _mean(self._compute_s, max(seconds, SHORTEST_S) / tokens)

    def fetched(self, tokens: int, seconds: float) -> None:
        """KV of so many tokens came from disk."""
        if tokens >= LEAST_TOKENS:
            nbytes = tokens * self._token_bytes
            self._read_s = _mean(self._read_s, max(seconds, SHORTEST_S) / nbytes)

    def told(self) -> str:
        """For the log, once both are known."""
        assert self._compute_s is not None and self._read_s is not None
        return (
            f"since {1 / self._compute_s:.0f} tokens a second are computed here, and the KV of "
            f"{1 / (self._read_s * self._token_bytes):.0f} is read"
        )

    def is_fetch(self) -> bool:
        """Whether to bring what is there. Yes while one of the two is unknown: that is how it
        becomes known."""
        if self._compute_s is None or self._read_s is None:
            return True
        is_faster = self._token_bytes * self._read_s < self._compute_s
        self._refused = 0 if is_faster or self._refused >= TRIED_AGAIN else self._refused + 1
        return is_faster or not self._refused


def _mean(before: float | None, now: float) -> float:
    return now if before is None else (1 - WEIGHT) * before + WEIGHT * now
