"""What the prompt cache counts, and the body of `GET /v1/cache/stats` (engine contract, cache 8).

The names of the keys stand here and nowhere else. Knows neither tokens nor arrays.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlxcel.core.cache import Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReject:
    reason: Reject
    request_id: str | None
    """None: it was no look-up of a request, but something that could not be kept."""
    context_len: int
    entry_len: int
    at_unix_ms: int


@dataclass(slots=True, kw_only=True)
class Counters:
    """Owned by the tick. Counts since the start; a reset of the cache keeps them."""

    hits: int = 0
    lookups: int = 0
    tokens_reused: int = 0
    tokens_looked_up: int = 0
    inserts: int = 0
    evictions_lru: int = 0
    evictions_ttl: int = 0
    rejections_oversized: int = 0
    snapshot_hits: int = 0
    snapshot_lookups: int = 0
    snapshot_tokens_reused: int = 0
    snapshot_inserts: int = 0
    snapshot_warmups_run: int = 0
    snapshot_warmups_skipped: int = 0
    snapshot_evictions_lru: int = 0
    snapshot_evictions_ttl: int = 0
    snapshot_supersedes: int = 0
    snapshot_self_evictions: int = 0
    snapshot_rejections_oversized: int = 0
    rejects: dict[Reject, int] = field(default_factory=lambda: dict.fromkeys(Reject, 0))
    last_reject: LastReject | None = None

    def looked_up(self, tokens: int, reused: int) -> None:
        """A look-up in the KV store: tokens of the prompt, and how many were not read again."""
        self.lookups += 1
        self.hits += reused > 0
        self.counted_tokens(tokens, reused)

    def looked_up_state(self, tokens: int, reused: int) -> None:
        """The same in the snapshot store; it does not advance the look-ups of the other."""
        self.snapshot_lookups += 1
        self.snapshot_hits += reused > 0
        self.snapshot_tokens_reused += reused
        self.counted_tokens(tokens, reused)

    def declined_state(self, request_id: str) -> None:
        """The KV store has no use for a row of a family that owns its state."""
        self.reject(Reject.MODEL_OWNED_STATE, request_id, 0, 0, int(time.time() * 1000))

    def counted_tokens(self, tokens: int, reused: int) -> None:
        """What the rate by tokens is made of; it is one for both stores."""
        self.tokens_looked_up += tokens
        self.tokens_reused += reused

    def reject(
        self,
        reason: Reject,
        request_id: str | None,
        context_len: int,
        entry_len: int,
        at_unix_ms: int,
    ) -> None:
        self.rejects[reason] += 1
        self.last_reject = LastReject(
            reason=reason,
            request_id=request_id,
            context_len=context_len,
            entry_len=entry_len,
            at_unix_ms=at_unix_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsConfig:
    """What is said of the switches; the bounds are shown also where the cache is off."""

    enabled: bool
    apc_enabled: bool = False
    block_size: int = 16
    hash: str = "sha256"
    kv_cache_mode_effective: str = "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreNumbers:
    """Of the KV prefix store: what `PrefixStore.stats` says."""

    entries: int = 0
    bytes: int = 0
    capacity_bytes: int | None = 0
    """None: no bound."""
    max_entries: int = 0
    total_blocks_stored: int = 0
    unique_block_hashes: int = 0
    apc_active_entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNumbers:
    entries: int = 0
    bytes: int = 0
    capacity_bytes: int | None = 0
    max_entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNumbers:
    """Of the account of KV blocks that running rows hold."""

    block_size: int = 0
    blocks_allocated: int = 0
    blocks_live: int = 0
    blocks_free: int = 0
    bytes_reserved: int = 0
    bytes_in_use: int = 0
    block_budget: int | None = 0
    """None: no bound."""


def stats_body(
    counters: Counters,
    config: StatsConfig,
    *,
    store: StoreNumbers = StoreNumbers(),
    snapshots: SnapshotNumbers = SnapshotNumbers(),
    pool: PoolNumbers = PoolNumbers(),
    disk: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Always the same keys. `disk` None: there is no disk tier."""
    return {
        "enabled": config.enabled,
        "apc_enabled": config.apc_enabled,
        "block_size": config.block_size,
        "hash": config.hash,
        "kv_cache_mode_effective": config.kv_cache_mode_effective,
        **_store(counters, store),
        **_snapshots(counters, snapshots),
        "paged_block_size": pool.block_size,
        "paged_blocks_allocated": pool.blocks_allocated,
        "paged_blocks_live": pool.blocks_live,
        "paged_blocks_free": pool.blocks_free,
        "paged_bytes_reserved": pool.bytes_reserved,
        "paged_bytes_in_use": pool.bytes_in_use,
        "paged_block_budget": pool.block_budget,
        **{f"reject_{reason}": count for reason, count in counters.rejects.items()},
        **_last_reject(counters.last_reject),
        "disk": None if disk is None else dict(disk),
    }


def disabled_body(
    *,
    kv_cache_mode_effective: str = "fp16",
    capacity_bytes: int | None = 0,
    max_entries: int = 0,
    snapshot_capacity_bytes: int | None = 0,
    snapshot_max_entries: int = 0,
) -> dict[str, Any]:
    """Of a worker without a prompt cache: zeros, beside the bounds as they were configured."""
    return stats_body(
        Counters(),
        StatsConfig(enabled=False, kv_cache_mode_effective=kv_cache_mode_effective),
        store=StoreNumbers(capacity_bytes=capacity_bytes, max_entries=max_entries),
        snapshots=SnapshotNumbers(
            capacity_bytes=snapshot_capacity_bytes, max_entries=snapshot_max_entries
        ),
    )


def reset_body(freed_bytes: int, freed_entries: int) -> dict[str, Any]:
    """Of `POST /v1/cache/reset`; zeros where there was nothing, or no cache."""
    return {"cleared": True, "freed_bytes": freed_bytes, "freed_entries": freed_entries}


def _store(counters: Counters, store: StoreNumbers) -> dict[str, Any]:
    return {
        "entries": store.entries,
        "bytes": store.bytes,
        "capacity_bytes": store.capacity_bytes,
        "max_entries": store.max_entries,
        "hits": counters.hits,
        "lookups": counters.lookups,
        "hit_rate": _rate(counters.hits, counters.lookups),
        "hit_rate_tokens": _rate(counters.tokens_reused, counters.tokens_looked_up),
        "tokens_reused": counters.tokens_reused,
        "tokens_looked_up": counters.tokens_looked_up,
        "inserts": counters.inserts,
        "evictions_lru": counters.evictions_lru,
        "evictions_ttl": counters.evictions_ttl,
        "rejections_oversized": counters.rejections_oversized,
        "total_blocks_stored": store.total_blocks_stored,
        "unique_block_hashes": store.unique_block_hashes,
        "apc_active_entries": store.apc_active_entries,
    }


def _snapshots(counters: Counters, held: SnapshotNumbers) -> dict[str, Any]:
    return {
        "snapshot_entries": held.entries,
        "snapshot_bytes": held.bytes,
        "snapshot_bytes_per_entry": held.bytes // max(1, held.entries),
        "snapshot_capacity_bytes": held.capacity_bytes,
        "snapshot_max_entries": held.max_entries,
        "snapshot_hits": counters.snapshot_hits,
        "snapshot_lookups": counters.snapshot_lookups,
        "snapshot_hit_rate": _rate(counters.snapshot_hits, counters.snapshot_lookups),
        "snapshot_tokens_reused": counters.snapshot_tokens_reused,
        "snapshot_inserts": counters.snapshot_inserts,
        "snapshot_warmups_run": counters.snapshot_warmups_run,
        "snapshot_warmups_skipped": counters.snapshot_warmups_skipped,
        "snapshot_evictions_lru": counters.snapshot_evictions_lru,
        "snapshot_evictions_ttl": counters.snapshot_evictions_ttl,
        "snapshot_supersedes": counters.snapshot_supersedes,
        "snapshot_self_evictions": counters.snapshot_self_evictions,
        "snapshot_rejections_oversized": counters.snapshot_rejections_oversized,
    }


def _last_reject(last: LastReject | None) -> dict[str, Any]:
    return {
        "last_reject_reason": None if last is None else str(last.reason),
        "last_reject_seq_id": None if last is None else last.request_id,
        "last_reject_context_len": None if last is None else last.context_len,
        "last_reject_entry_len": None if last is None else last.entry_len,
        "last_reject_at_unix_ms": None if last is None else last.at_unix_ms,
    }


def _rate(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
