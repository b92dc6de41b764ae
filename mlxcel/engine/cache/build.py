"""The prompt cache of a worker, from the options and the loaded model."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlx_lm.models.cache import make_prompt_cache

from mlxcel.engine.cache.capacity import Footprint, prompt_capacity, snapshot_capacity
from mlxcel.engine.cache.columns import ColumnKeeping
from mlxcel.engine.cache.counters import Counters, SnapshotNumbers, StatsConfig, StoreNumbers
from mlxcel.engine.cache.disk.tier import QUEUE_BYTES, DiskRules, DiskTier, Identity
from mlxcel.engine.cache.keeping import Keeping, Numbers
from mlxcel.engine.cache.prompt_cache import PromptCache
from mlxcel.engine.cache.snapshots import SnapshotRules
from mlxcel.engine.cache.state_files import kinds_of, layout_of
from mlxcel.engine.cache.states_kept import StateKeeping
from mlxcel.engine.cache.store import SessionRules, StoreRules
from mlxcel.engine.cache.system_prefix import SystemPrefix
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.memory.estimate import token_bytes
from mlxcel.engine.memory.pool import BLOCK
from mlxcel.weights.card import MemoryCard
from mlxcel.weights.fingerprint import fingerprint
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.base import Progress

log = logging.getLogger(__name__)

FLOOR = 32
"""Tokens that adoption is a multiple of, as in the paged product this one agrees with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the cache of a worker stands on."""

    model: LoadedModel
    name: str
    """What the model is called in the names of files."""
    card: MemoryCard
    plan: KVPlan
    window: int
    """Tokens of a slot; 0: unbounded."""
    left_bytes: int | None
    """Memory beside the weights; None: unknown."""
    keeps_columns: bool
    lora: tuple[float, ...] = ()
    """The scales at the start."""

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            token_bytes=token_bytes(self.card),
            state_bytes=self.card.state_bytes,
            context=self.window or self.model.train_window or FLOOR,
            left_bytes=self.left_bytes,
        )


def prompt_cache(
    cache: Mapping[str, Any], ground: Ground, counters: Counters, progress: Progress
) -> PromptCache:
    """`cache` is the section of the options."""
    rules, snapshots = _store_rules(cache, ground), _snapshot_rules(cache, ground)
    keeping: Keeping | None = None
    is_on = cache["prompt"]["enabled"]
    if is_on and ground.keeps_columns and rules.capacity_bytes != 0:
        keeping = _columns(cache, rules, ground, counters, progress)
    if is_on and not ground.keeps_columns and snapshots.capacity_bytes and not ground.plan.codecs:
        keeping = _states(cache, snapshots, ground, counters, progress)
    log.info("prompt cache: %s", _told(keeping, rules, snapshots))
    return PromptCache(
        keeping,
        counters,
        StatsConfig(
            enabled=keeping is not None,
            apc_enabled=isinstance(keeping, ColumnKeeping) and rules.is_apc,
            block_size=rules.block,
            hash=cache["apc"]["hash"].replace("-", ""),
            kv_cache_mode_effective=ground.plan.effective,
        ),
        idle=Numbers(
            store=StoreNumbers(capacity_bytes=rules.capacity_bytes, max_entries=rules.max_entries),
            snapshots=SnapshotNumbers(
                capacity_bytes=snapshots.capacity_bytes, max_entries=snapshots.max_entries
            ),
        ),
        block_bytes=BLOCK * token_bytes(ground.card) // max(1, ground.card.attention_layers),
        min_prefix=rules.min_prefix,
        traces=cache["apc"]["trace"],
    )


def identity_of(ground: Ground) -> Identity:
    """Adapters are among the parameters; their scales are part of each key."""
    return Identity(
        model=fingerprint(ground.model.network), kv_mode=ground.plan.layout, adapters=""
    )


def _columns(
    cache: Mapping[str, Any],
    rules: StoreRules,
    ground: Ground,
    counters: Counters,
    progress: Progress,
) -> ColumnKeeping:
    disk, prefix_dir = cache["disk"], cache["prefix_dir"]
    identity = None
    if disk["path"] is not None or prefix_dir is not None:
        progress("taking the fingerprint of the weights", None)
        identity = identity_of(ground)
    system = None
    if prefix_dir is not None and identity is not None:
        system = SystemPrefix(Path(prefix_dir).expanduser(), ground.name, identity)
    keeping = ColumnKeeping(
        rules,
        counters,
        plan=ground.plan,
        system=system,
        system_lora=ground.lora,
        token_bytes=token_bytes(ground.card),
    )
    if disk["path"] is not None and identity is not None:
        tier = DiskTier(_disk_rules(disk), identity, hash_kind=cache["apc"]["hash"])
        keeping.write_to(tier, progress)
    return keeping


def _states(
    cache: Mapping[str, Any],
    rules: SnapshotRules,
    ground: Ground,
    counters: Counters,
    progress: Progress,
) -> StateKeeping:
    disk, prefix_dir = cache["disk"], cache["prefix_dir"]
    keeping = StateKeeping(rules, counters, at_boundary=cache["snapshot"]["boundary"])
    if prefix_dir is not None:
        log.warning("cache.prefix_dir has no effect: the state of this model cannot be cut")
    if disk["path"] is not None:
        progress("taking the fingerprint of the weights", None)
        caches = make_prompt_cache(ground.model.network)
        layout = f"states:{ground.plan.layout}:{layout_of(caches)}"
        tier = DiskTier(
            _disk_rules(disk),
            replace(identity_of(ground), kv_mode=layout),
            hash_kind=cache["apc"]["hash"],
            # What waits is in memory anyway, and a single state may be larger than a queue.
            queue_bytes=max(QUEUE_BYTES, rules.capacity_bytes or 0),
        )
        keeping.write_to(tier, kinds_of(caches), progress)
    return keeping


def _store_rules(cache: Mapping[str, Any], ground: Ground) -> StoreRules:
    prompt, apc, conversations = cache["prompt"], cache["apc"], cache["conversations"]
    sessions = None
    if conversations["enabled"]:
        sessions = SessionRules(
            most=conversations["max_conversations"],
            entries=1 + conversations["snapshots"],
            ttl_s=conversations["ttl_secs"],
            max_tokens=conversations["max_tokens"] or ground.window or ground.model.train_window,
        )
    most = prompt["max_entries"]
    if apc["num_blocks"] is not None:
        # The only bound there is on entries: one of a single block each would fill it.
        most = min(most, apc["num_blocks"])
    return StoreRules(
        capacity_bytes=prompt_capacity(
            prompt["capacity_bytes"], prompt["ram_mib"], ground.footprint
        ),
        max_entries=most,
        ttl_s=prompt["ttl_secs"],
        min_prefix=prompt["min_prefix"],
        is_apc=apc["enabled"],
        block=apc["block_size"],
        floor=1 if conversations["enabled"] else FLOOR,
        sessions=sessions,
    )


def _snapshot_rules(cache: Mapping[str, Any], ground: Ground) -> SnapshotRules:
    snapshot = cache["snapshot"]
    return SnapshotRules(
        capacity_bytes=snapshot_capacity(snapshot["capacity_bytes"], ground.footprint),
        max_entries=snapshot["max_entries"],
        ttl_s=snapshot["ttl_secs"],
    )


def _disk_rules(disk: Mapping[str, Any]) -> DiskRules:
    return DiskRules(
        folder=Path(disk["path"]).expanduser(),
        capacity_bytes=disk["capacity_bytes"],
        min_free_bytes=disk["min_free_bytes"],
        ttl_s=disk["ttl_secs"],
    )


def _told(keeping: Keeping | None, rules: StoreRules, snapshots: SnapshotRules) -> str:
    if keeping is None:
        return "off"
    assert isinstance(keeping, StateKeeping | ColumnKeeping)
    disk = "" if keeping.spill is None else f", disk {keeping.spill.stats()['path']}"
    if isinstance(keeping, StateKeeping):
        return f"snapshots, {_size(snapshots.capacity_bytes)}{disk}"
    return f"prefixes, {_size(rules.capacity_bytes)}{disk}"


def _size(nbytes: int | None) -> str:
    return "unbounded" if nbytes is None else f"{nbytes / 2**30:.1f} GiB"
