"""What was found for a prompt, whichever way KV is kept, and how a request is told of it."""

from dataclasses import dataclass

from mlxcel.core.cache import CacheReport, CacheStatus, Divergence, Reject, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    length: int = 0
    """Tokens that need not be read."""
    source: Source = Source.MEMORY
    reason: Reject | None = None
    diverged: Divergence | None = None
    is_older: bool = False
    is_system: bool = False
    """It is the KV of the system messages, which no session kept."""
    entry_length: int = 0
    """Tokens of the nearest entry."""

    def report(self, *, fetched: int = 0) -> CacheReport:
        """`fetched`: tokens that were brought from disk for it."""
        if not self.length:
            return CacheReport(
                status=CacheStatus.MISS,
                # On disk, and not in memory after all: there was no room for it.
                reason=Reject.OVERSIZED if fetched else self.reason or Reject.EMPTY_SET,
                diverged=self.diverged,
            )
        return CacheReport(
            status=CacheStatus.HIT,
            reused=self.length,
            source=Source.DISK if fetched else self.source,
            reason=self.reason,
            diverged=self.diverged,
            is_older=self.is_older,
            is_system=self.is_system,
        )


OFF = CacheReport(status=CacheStatus.OFF, reason=Reject.DISABLED)
"""For a request that wants none."""
