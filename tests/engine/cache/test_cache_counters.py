"""The body of the cache's statistics: its keys, exactly, whether there is a cache or not."""

from dataclasses import fields

import pytest

from mlxcel.core.cache import Reject
from mlxcel.engine.cache.counters import (
    Counters,
    PoolNumbers,
    SnapshotNumbers,
    StatsConfig,
    StoreNumbers,
    disabled_body,
    reset_body,
    stats_body,
)
from tests.engine.cache.told_payload import Shelf

CONTRACT = set(
    """
    enabled apc_enabled block_size hash kv_cache_mode_effective
    entries bytes capacity_bytes max_entries hits lookups hit_rate inserts evictions_lru
    evictions_ttl rejections_oversized
    total_blocks_stored unique_block_hashes apc_active_entries
    snapshot_entries snapshot_bytes snapshot_bytes_per_entry snapshot_capacity_bytes
    snapshot_max_entries snapshot_hits snapshot_lookups snapshot_hit_rate snapshot_inserts
    snapshot_warmups_run snapshot_warmups_skipped snapshot_evictions_lru snapshot_evictions_ttl
    snapshot_supersedes snapshot_self_evictions snapshot_rejections_oversized
    paged_block_size paged_blocks_allocated paged_blocks_live paged_blocks_free
    paged_bytes_reserved paged_bytes_in_use paged_block_budget
    reject_oversized reject_disabled reject_prefix_too_short reject_mode_mismatch
    reject_kv_mode_mismatch reject_empty_set reject_layout_constraints
    reject_block_boundary_floor reject_snapshot_diverged reject_model_owned_state
    reject_rope_regime_mismatch
    last_reject_reason last_reject_seq_id last_reject_context_len last_reject_entry_len
    last_reject_at_unix_ms
    """.split()  # noqa: SIM905
)
OURS = {"hit_rate_tokens", "tokens_reused", "tokens_looked_up", "snapshot_tokens_reused", "disk"}
CONFIG = StatsConfig(enabled=True, apc_enabled=True)


def test_enabled_cache_has_exactly_the_keys() -> None:
    body = stats_body(Counters(), CONFIG)
    assert set(body) == CONTRACT | OURS


def test_disabled_cache_has_the_same_keys_and_zeros_beside_its_bounds() -> None:
    body = disabled_body(capacity_bytes=2 << 30, max_entries=1024)
    assert set(body) == CONTRACT | OURS
    assert body["enabled"] is False
    assert (body["capacity_bytes"], body["max_entries"]) == (2 << 30, 1024)
    shown = {
        "capacity_bytes", "max_entries", "block_size", "hash", "kv_cache_mode_effective",
    }  # fmt: skip
    rest = {name: value for name, value in body.items() if name not in shown}
    assert not any(rest.values()), rest
    assert (body["hit_rate"], body["last_reject_reason"], body["disk"]) == (0.0, None, None)


def test_rates() -> None:
    counters = Counters()
    counters.looked_up(100, 96)
    counters.looked_up(100, 0)
    counters.looked_up_state(200, 154)
    body = stats_body(counters, CONFIG)
    assert (body["lookups"], body["hits"], body["hit_rate"]) == (2, 1, 0.5)
    assert (body["snapshot_lookups"], body["snapshot_hit_rate"]) == (1, 1.0)
    assert (body["tokens_reused"], body["tokens_looked_up"]) == (250, 400)
    assert body["snapshot_tokens_reused"] == 154
    assert body["hit_rate_tokens"] == 0.625


@pytest.mark.parametrize("reason", list(Reject))
def test_reject_counts_under_its_reason_and_is_the_last(reason: Reject) -> None:
    counters = Counters()
    counters.reject(reason, "r1", 70, 100, 5)
    body = stats_body(counters, CONFIG)
    assert body[f"reject_{reason}"] == 1
    assert sum(body[f"reject_{other}"] for other in Reject) == 1
    last = [
        body[f"last_reject_{name}"]
        for name in ("reason", "seq_id", "context_len", "entry_len", "at_unix_ms")
    ]
    assert last == [reason.value, "r1", 70, 100, 5]
    assert type(body["last_reject_reason"]) is str


def test_declined_row_of_a_family_with_its_own_state_is_the_last_reject() -> None:
    counters = Counters()
    counters.declined_state("r7")
    body = stats_body(counters, CONFIG)
    assert body["reject_model_owned_state"] == 1
    assert (body["last_reject_reason"], body["last_reject_seq_id"]) == ("model_owned_state", "r7")
    assert body["last_reject_at_unix_ms"] > 1_700_000_000_000


def test_numbers_of_all_parts_reach_the_body() -> None:
    body = stats_body(
        Counters(),
        CONFIG,
        snapshots=SnapshotNumbers(entries=2, bytes=11, capacity_bytes=100, max_entries=4096),
        pool=PoolNumbers(
            block_size=32,
            blocks_allocated=10,
            blocks_live=4,
            blocks_free=6,
            bytes_reserved=1000,
            bytes_in_use=400,
            block_budget=10,
        ),
        disk={"files": 3},
    )
    assert (body["snapshot_entries"], body["snapshot_bytes"]) == (2, 11)
    assert body["snapshot_bytes_per_entry"] == 5
    assert (body["snapshot_capacity_bytes"], body["snapshot_max_entries"]) == (100, 4096)
    paged = [value for name, value in body.items() if name.startswith("paged_")]
    assert paged == [32, 10, 4, 6, 1000, 400, 10]
    assert body["disk"] == {"files": 3}


def test_store_says_the_numbers_of_the_body() -> None:
    shelf = Shelf(capacity_bytes=10_000, max_entries=7)
    shelf.insert(range(100))
    shelf.insert([*range(64), *range(500, 520)])
    numbers = shelf.store.stats()
    assert sorted(numbers) == sorted(field.name for field in fields(StoreNumbers))
    body = stats_body(shelf.counters, CONFIG, store=StoreNumbers(**numbers))
    assert (body["entries"], body["bytes"]) == (2, 480)
    assert (body["capacity_bytes"], body["max_entries"], body["inserts"]) == (10_000, 7, 2)
    # Of 7 and 6 blocks the first 4 are the same; both entries end in a partial one.
    assert (body["total_blocks_stored"], body["unique_block_hashes"]) == (13, 9)
    assert body["apc_active_entries"] == 2


def test_reset_body() -> None:
    assert reset_body(5, 2) == {"cleared": True, "freed_bytes": 5, "freed_entries": 2}
