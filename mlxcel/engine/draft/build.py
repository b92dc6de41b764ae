"""From the section `draft` to what the decode loop asks."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from mlxcel.engine.draft.base import RowDraft
from mlxcel.engine.draft.governor import Gated, Governor, Graded
from mlxcel.engine.draft.prompt_lookup import PromptLookup
from mlxcel.engine.draft.speculation import Speculation
from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.report import Report
from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)

KIND = "prompt-lookup"
"""As it is told to clients."""


def speculation_from(
    draft: Mapping[str, Any],
    *,
    kv: KVBatch,
    window: int,
    backend: Backend,
    report: Report,
) -> Speculation | None:
    """None: no row proposes anything."""
    if draft["kind"] == "none":
        return None
    if not kv.can_rewind:
        log.warning("draft=%s is without effect: rows cannot give KV back here", draft["kind"])
        return None
    policy = policy_of(draft, backend)
    log.info(
        "speculative=prompt-lookup (max_draft=%d, policy=%s, max_batch=%d)",
        *(draft["max_draft"], policy, draft["max_batch"]),
    )
    make = partial(_prompt_lookup, dict(draft), policy)
    return Speculation(KIND, make, max_batch=draft["max_batch"], window=window, report=report)


def policy_of(draft: Mapping[str, Any], backend: Backend) -> str:
    if draft["policy"] != "auto":
        return str(draft["policy"])
    return "gated" if backend is Backend.CUDA else "graded"


def _prompt_lookup(draft: Mapping[str, Any], policy: str) -> RowDraft:
    most: int = draft["max_draft"]
    governor: Governor = Gated(most) if policy == "gated" else Graded(most)
    sizes = {name: draft[name] for name in ("ngram_min", "ngram_max")}
    return RowDraft(PromptLookup(**sizes), governor)
