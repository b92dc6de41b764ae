"""What was found for a prompt, whichever way KV is kept, and how a request is told of it."""

from dataclasses import dataclass

from mlxcel.core.cache import CacheReport, CacheStatus, Divergence, Reject, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    length: int = 0
    """Tokens that need not be read."""
    reach: int = 0
    """The same, once what is on disk was brought."""
    source: Source = Source.MEMORY
    reason: Reject | None = None
    diverged: Divergence | None = None
    is_older: bool = False
    is_system: bool = False
    """It is the KV of the system messages, which no session kept."""
    entry_length: int = 0
    """Tokens of the nearest entry."""

    def report(self, *, fetched: int = 0, ahead: bool = False) -> CacheReport:
        """`fetched`: tokens that were brought from disk for it. `ahead`: on arrival, when what is
        on disk counts as found."""
        length = max(self.length, self.reach) if ahead else self.length
        if not length:
            return CacheReport(
                status=CacheStatus.MISS,
                # On disk, but not in memory after all: there was no room for it.
                reason=Reject.OVERSIZED if self.reach else self.reason or Reject.EMPTY_SET,
                diverged=self.diverged,
            )
        from_disk = length > self.length or fetched > 0
        return CacheReport(
            status=CacheStatus.HIT,
            reused=length,
            source=Source.DISK if from_disk else self.source,
            reason=self.reason,
            diverged=self.diverged,
            is_older=self.is_older,
            is_system=self.is_system,
        )


OFF = CacheReport(status=CacheStatus.OFF, reason=Reject.DISABLED)
"""For a request that wants none."""
