"""The prompt cache and the account of KV blocks, from the body of `GET /v1/cache/stats`."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

from mlxcel.core.cache import Reject
from mlxcel.metrics.families import counter, gauge, labelled
from mlxcel.metrics.steady import Steady

POOL: Mapping[str, str] = {
    "paged_block_size": "Tokens of a block.",
    "paged_blocks_allocated": "Blocks that were set aside.",
    "paged_blocks_live": "Blocks in use.",
    "paged_blocks_free": "Blocks of the budget that are free; 0 without a budget.",
    "paged_bytes_reserved": "Bytes that were set aside.",
    "paged_bytes_in_use": "Bytes in use.",
    "paged_block_budget": "Blocks all rows may hold together; 0: no bound.",
}
REJECTS: Mapping[str, str] = {str(reason): f"reject_{reason}" for reason in Reject}
COUNTED = (
    "hits",
    "lookups",
    "tokens_reused",
    "evictions_lru",
    "evictions_ttl",
    "snapshot_hits",
    "snapshot_lookups",
    "snapshot_tokens_reused",
    "snapshot_evictions_lru",
    "snapshot_evictions_ttl",
    *REJECTS.values(),
)


def counters_of(body: Mapping[str, Any]) -> dict[str, int]:
    return {name: body.get(name, 0) for name in COUNTED}


def pool_families(body: Mapping[str, Any], active: int) -> Iterator[Metric]:
    """Gauges of a worker that is not there are 0: then `body` is empty."""
    yield gauge("mlxcel_cache_pool_active", "Rows that hold KV.", active)
    for name, about in POOL.items():
        yield gauge(f"mlxcel_cache_pool_{name}", about, body.get(name) or 0)


def prompt_families(body: Mapping[str, Any], steady: Steady) -> Iterator[Metric]:
    missed = steady["lookups"] - steady["hits"]
    reused = steady["tokens_reused"] - steady["snapshot_tokens_reused"]
    for name, about, value in (
        ("hits_total", "Requests that found something.", steady["hits"]),
        ("misses_total", "Requests that found nothing.", missed),
        ("prefix_tokens_reused_total", "Prompt tokens that were not read again.", reused),
    ):
        yield counter(f"mlxcel_prompt_cache_{name}", about, value)
    evicted = {word: steady[f"evictions_{word}"] for word in ("lru", "ttl")}
    yield labelled(
        "mlxcel_prompt_cache_evictions_total",
        "Entries that went for room (lru) or for age (ttl); for room is never called capacity.",
        "reason",
        evicted | {"capacity": 0},
    )
    yield gauge("mlxcel_prompt_cache_bytes", "Bytes kept in memory.", body.get("bytes", 0))
    yield gauge("mlxcel_prompt_cache_entries", "Entries in memory.", body.get("entries", 0))


def snapshot_families(steady: Steady) -> Iterator[Metric]:
    missed = steady["snapshot_lookups"] - steady["snapshot_hits"]
    for name, about, value in (
        ("hits_total", "Requests that found a snapshot.", steady["snapshot_hits"]),
        ("misses_total", "Requests that found none.", missed),
        (
            "tokens_reused_total",
            "Prompt tokens that were not read again.",
            steady["snapshot_tokens_reused"],
        ),
    ):
        yield counter(f"mlxcel_prompt_cache_snapshot_{name}", about, value)
    yield labelled(
        "mlxcel_prompt_cache_snapshot_evictions_total",
        "Snapshots that went for room (lru) or for age (ttl).",
        "reason",
        {word: steady[f"snapshot_evictions_{word}"] for word in ("lru", "ttl")},
    )


def reject_families(steady: Steady) -> Iterator[Metric]:
    yield labelled(
        "mlxcel_prompt_cache_reject_total",
        "Why prompts, or parts of them, had to be read.",
        "reason",
        {reason: steady[field] for reason, field in REJECTS.items()},
    )
