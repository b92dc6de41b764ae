"""The `workers` section of the tree as values: how patient the supervisor is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from mlxcel.link.backoff import Backoff
from mlxcel.link.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    beat_interval_s: float
    beat_timeout_s: float
    tick_timeout_s: float
    start_timeout_s: float
    exit_timeout_s: float
    backoff: Mapping[str, float]

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> Self:
        return cls(
            beat_interval_s=section["heartbeat"]["interval_s"],
            beat_timeout_s=section["heartbeat"]["timeout_s"],
            tick_timeout_s=section["tick_timeout_s"],
            start_timeout_s=section["start_timeout_s"],
            exit_timeout_s=section["exit_timeout_s"],
            backoff=section["backoff"],
        )

    def new_backoff(self) -> Backoff:
        return Backoff(**self.backoff)

    def new_watch(self) -> Watch:
        return Watch(
            interval_s=self.beat_interval_s,
            timeout_s=self.beat_timeout_s,
            tick_timeout_s=self.tick_timeout_s,
        )
