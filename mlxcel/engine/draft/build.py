"""From the section `draft` to what the decode loop asks."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mlxcel.core.status import DraftInfo
from mlxcel.engine.draft.base import Drafter, RowDraft
from mlxcel.engine.draft.full_model import FullModel
from mlxcel.engine.draft.governor import Gated, Governor, Graded
from mlxcel.engine.draft.prompt_lookup import PromptLookup
from mlxcel.engine.draft.speculation import Speculation
from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.report import Report
from mlxcel.engine.sequence import Sequence as Row
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)

NAMES = {"prompt_lookup": "prompt-lookup", "full_model": "full-model"}
"""As clients and the log are told."""
MakeDrafter = Callable[[Row], Drafter]


def speculation_from(
    draft: Mapping[str, Any],
    *,
    drafter: LoadedModel | None,
    model: LoadedModel,
    kv: KVBatch,
    chunk: int,
    window: int,
    report: Report,
) -> Speculation | None:
    """None: no row proposes anything. `drafter` where the kind has a model of its own; `chunk`:
    tokens of a prompt it reads at once."""
    kind = draft["kind"]
    if kind == "none":
        log.info("speculative=off")
        return None
    if not kv.can_rewind:
        log.warning("draft=%s is without effect: rows cannot give KV back here", kind)
        return None
    policy = _policy(draft, model.backend)
    info = DraftInfo(
        kind=NAMES[kind],
        model=None if drafter is None else drafter.folder.name,
        max_draft=draft["max_draft"],
    )
    log.info(
        "speculative=%s (max_draft=%d, policy=%s, max_batch=%d)",
        *(info.kind, info.max_draft, policy, draft["max_batch"]),
    )
    make = _maker(draft, drafter, model, chunk)
    return Speculation(
        info,
        lambda row: RowDraft(make(row), _governor(policy, info.max_draft)),
        max_batch=draft["max_batch"],
        window=window,
        report=report,
    )


def _maker(
    draft: Mapping[str, Any], drafter: LoadedModel | None, model: LoadedModel, chunk: int
) -> MakeDrafter:
    if drafter is None:
        sizes = {name: draft[name] for name in ("ngram_min", "ngram_max")}
        return lambda _: PromptLookup(**sizes)
    vocab = min(model.vocab_size, drafter.vocab_size)
    make = partial(FullModel, drafter.network, vocab=vocab, chunk=chunk)
    return lambda row: make(row.sampling)


def _governor(policy: str, most: int) -> Governor:
    return Gated(most) if policy == "gated" else Graded(most)


def _policy(draft: Mapping[str, Any], backend: Backend) -> str:
    if draft["policy"] != "auto":
        return str(draft["policy"])
    return "gated" if backend is Backend.CUDA else "graded"
