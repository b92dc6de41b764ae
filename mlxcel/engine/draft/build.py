"""From the section `draft` to what the decode loop asks."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from mlxcel.core.status import DraftInfo
from mlxcel.engine.draft.base import Drafter, RowDraft
from mlxcel.engine.draft.diagnosis import Tally, rule_of
from mlxcel.engine.draft.full_model import FullModel
from mlxcel.engine.draft.governor import Gated, Governor, Graded
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.draft.prices import Prices
from mlxcel.engine.draft.prompt_lookup import PromptLookup
from mlxcel.engine.draft.speculation import MakeTally, Policy, Speculation
from mlxcel.engine.draft.taps import Tapped
from mlxcel.engine.kv.batch import KVBatch
from mlxcel.engine.kv.modes import KVPlan, are_plain
from mlxcel.engine.report import Report
from mlxcel.engine.sequence import Sequence as Row
from mlxcel.weights.load import LoadedModel
from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)

NAMES = {"prompt_lookup": "prompt-lookup", "full_model": "full-model"}
"""As clients and the log are told."""
MakeDrafter = Callable[[Row], Drafter]


def with_taps(
    model: LoadedModel, plan: KVPlan, drafter: LoadedModel | DraftHead | None
) -> tuple[LoadedModel, KVPlan]:
    """The model and its plan with what the drafter wants to see of it, where its KV can be taken
    back at all: with a cap, or with KV modes beside states, it cannot."""
    if not isinstance(drafter, DraftHead):
        return model, plan
    is_mixed = bool(plan.codecs) and not are_plain(make_prompt_cache(model.network))
    if plan.cap or is_mixed:
        return model, plan
    tapped = Tapped(model.network, drafter.taps, drafter.project)
    return replace(model, network=tapped), plan.with_one_more()


def weights_bytes(drafter: LoadedModel | DraftHead | None) -> int:
    """Beside those of the model."""
    if drafter is None:
        return 0
    arrays = cast(list[tuple[str, mx.array]], tree_flatten(drafter.network.parameters()))
    return sum(array.nbytes for _, array in arrays)


def speculation_from(
    draft: Mapping[str, Any],
    *,
    drafter: LoadedModel | DraftHead | None,
    model: LoadedModel,
    kv: KVBatch,
    chunk: int,
    window: int,
    report: Report,
    policy: Policy | None = None,
) -> Speculation | None:
    """None: no row proposes anything. `drafter` where the kind has a model of its own, `model`
    with its taps; `chunk`: tokens of a prompt it reads at once."""
    kind = draft["kind"]
    if kind == "none":
        log.info("speculative=off")
        return None
    is_head = isinstance(drafter, DraftHead)
    if not (kv.can_rewind or (is_head and kv.can_replay)):
        log.warning("draft=%s is without effect: rows cannot give KV back here", kind)
        return None
    governed = _policy(draft, model.backend)
    info = DraftInfo(
        kind=NAMES.get(kind, kind),
        model=None if drafter is None else drafter.folder.name,
        max_draft=drafter.most if isinstance(drafter, DraftHead) else draft["max_draft"],
    )
    most = draft["max_batch"] if kv.can_rewind else 1
    if most < draft["max_batch"]:
        log.info("draft.max_batch %d -> 1: states are taken back row by row", draft["max_batch"])
    told = f"max_draft={info.max_draft}, policy={governed}, max_batch={most}"
    if isinstance(drafter, DraftHead):
        about = ", ".join(f"{name}={value}" for name, value in drafter.about.items())
        log.info("speculative=%s", info.kind)
        log.info("%s: %s, %s", drafter.name, told, about)
    else:
        log.info("speculative=%s (%s)", info.kind, told)
    make = _maker(draft, drafter, model, chunk)
    return Speculation(
        info,
        lambda row: RowDraft(make(row), _governor(governed, info.max_draft)),
        max_batch=most,
        window=window,
        report=report,
        is_head=is_head,
        chunk=chunk,
        policy=policy,
        tally=_tally(draft) if draft.get("accept_diag") else None,
        prices=Prices() if draft.get("weighs_time") else None,
    )


def _maker(
    draft: Mapping[str, Any],
    drafter: LoadedModel | DraftHead | None,
    model: LoadedModel,
    chunk: int,
) -> MakeDrafter:
    if drafter is None:
        sizes = {name: draft[name] for name in ("ngram_min", "ngram_max")}
        return lambda _: PromptLookup(**sizes)
    if isinstance(drafter, DraftHead):
        head = drafter
        return lambda row: head.make(row.sampling)
    vocab = min(model.vocab_size, drafter.vocab_size)
    make = partial(
        FullModel,
        drafter.network,
        vocab=vocab,
        chunk=chunk,
        keeps_odds=draft["stochastic_accept"],
    )
    return lambda row: make(row.sampling)


def _tally(draft: Mapping[str, Any]) -> MakeTally:
    rejects = draft.get("stochastic_accept", False)
    return lambda row: Tally(
        rule=rule_of(row.sampling, rejects=rejects), is_lookup=draft["kind"] == "prompt_lookup"
    )


def _governor(policy: str, most: int) -> Governor:
    return Gated(most) if policy == "gated" else Graded(most)


def _policy(draft: Mapping[str, Any], backend: Backend) -> str:
    if draft["policy"] != "auto":
        return str(draft["policy"])
    return "gated" if backend is Backend.CUDA else "graded"
