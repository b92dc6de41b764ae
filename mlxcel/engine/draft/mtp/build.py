"""The policy of MTP from the section `draft` and what it is to hold for."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.draft.mtp.hardware import hardware_name, static_default
from mlxcel.engine.draft.mtp.memory import PolicyMemory
from mlxcel.engine.draft.mtp.policy import MtpPolicy, Pairing, Tell
from mlxcel.engine.draft.mtp.probe import differs
from mlxcel.engine.kv.batch import KVBatch, KVRewinding
from mlxcel.engine.kv.choose import can_batch, row_caches
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.base import Progress

log = logging.getLogger(__name__)

KIND = "mtp"


def policy_from(
    draft: Mapping[str, Any],
    *,
    drafter: object,
    model: LoadedModel,
    name: str,
    plan: KVPlan,
    kv: KVBatch,
    cache_dir: str | None,
    tell: Tell,
    progress: Progress,
) -> MtpPolicy | None:
    """None: it is another kind, or nothing can be taken back here. `name` is the model's; `model`,
    `plan` and `kv` are those it decodes with, taps included. `cache_dir` None: what is found is
    forgotten."""
    if draft["kind"] != KIND or not isinstance(drafter, DraftHead):
        return None
    if not (kv.can_rewind or kv.can_replay):
        return None
    pairing = Pairing(
        target=f"{name} ({model.precision.partition(' (')[0]})",
        drafter=drafter.name,
        hardware=hardware_name(),
        block_size=drafter.most + 1,
    )
    memory = PolicyMemory(None if cache_dir is None else Path(cache_dir), pairing)
    default = static_default(model.backend, is_batchable=can_batch(model.network, model.family))
    policy = MtpPolicy(
        pairing,
        adaptive=draft["adaptive"],
        force=draft["force"],
        default=default,
        declined=_declined(draft, model, pairing.block_size, plan, kv, progress),
        remembered=memory.read(),
        keep=memory.keep,
        tell=tell,
    )
    log.info("mtp policy: %s, rounds %s", policy.state, "on" if policy.is_enabled else "off")
    return policy


def _declined(
    draft: Mapping[str, Any],
    model: LoadedModel,
    width: int,
    plan: KVPlan,
    kv: KVBatch,
    progress: Progress,
) -> str | None:
    if draft["allow_inexact"] or draft["force"] is False:
        return None
    progress("comparing wide steps with plain ones", None)
    fresh = partial(row_caches, model.network, plan)
    batch = cast(KVRewinding, kv) if kv.can_rewind else None
    try:
        how = differs(model.network, width, fresh=fresh, kv=batch)
    except (RuntimeError, ValueError) as why:
        how = f"a step over {width} tokens fails: {why}"
    if how is not None:
        log.warning(
            "mtp is declined, since texts may leave those of plain steps at near ties: %s; "
            "draft.allow_inexact=true accepts that",
            how,
        )
    return how
