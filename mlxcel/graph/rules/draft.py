"""Speculative decoding beside the rest of the configuration."""

from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.rules.finding import Finding, Settled, Tree
from mlxcel.graph.spec import Clamp

UNBOUNDED = (None, "auto", "none", 0)
"""Values of a KV budget that nobody has set."""
TRIMMED = ("prompt_lookup", "full_model")
"""Kinds that give way to a KV budget."""


def draft_width(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """`n_max` bounds what is proposed: of a block all tokens but the row's last one."""
    draft = tree["draft"]
    most = draft.get("n_max")
    if most is None:
        return
    if "max_draft" in draft:
        yield Settled(key="draft.max_draft", used=min(most, draft["max_draft"]))
    if "block_size" in draft:
        block = draft["block_size"]
        yield Settled(
            key="draft.block_size", used=most + 1 if block is None else min(most + 1, block)
        )


def draft_fits(tree: Tree, card: Card | None) -> Iterator[Finding]:
    draft = tree["draft"]
    kind = draft["kind"]
    if kind == "none":
        return
    is_open = kind == "auto" and draft["path"] is None
    if read(tree, "engine.kind") == "echo" and not is_open:
        yield Problem(
            key="draft.kind",
            value=kind,
            rule="has nobody to draft for: a scripted engine says its script",
            hint="leave it out, or choose a model",
        )
    if kind == "prompt_lookup" and draft["ngram_max"] < draft["ngram_min"]:
        yield Problem(
            key="draft.ngram_max",
            value=draft["ngram_max"],
            rule=f"is below draft.ngram_min, which is {draft['ngram_min']}",
            hint="the longest is tried first, then shorter ones",
        )
    budget = read(tree, "cache.kv_budget")
    if kind in TRIMMED and budget not in UNBOUNDED:
        reason = f"cache.kv_budget is {budget}: a verify round takes more KV than it keeps"
        yield Clamp(key="draft.kind", asked=kind, used="none", reason=reason)
        yield Settled(key="draft.node", used=None)


def draft_found(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """Known only once the model is: `card`."""
    draft = tree["draft"]
    if draft["kind"] == "auto" and card is not None:
        yield f"who drafts is not known: {draft['path']} (draft.path) is not on this machine"
