"""Speculative decoding beside the rest of the configuration."""

from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.rules.finding import Finding, Tree
from mlxcel.graph.spec import Clamp

UNBOUNDED = (None, "auto", "none", 0)
"""Values of a KV budget that nobody has set."""


def draft_fits(tree: Tree, card: Card | None) -> Iterator[Finding]:
    draft = tree["draft"]
    if draft["kind"] == "none":
        return
    if read(tree, "engine.kind") == "echo":
        yield Problem(
            key="draft.kind",
            value=draft["kind"],
            rule="has nobody to draft for: a scripted engine says its script",
            hint="leave it out, or choose a model",
        )
    if draft["kind"] == "prompt_lookup" and draft["ngram_max"] < draft["ngram_min"]:
        yield Problem(
            key="draft.ngram_max",
            value=draft["ngram_max"],
            rule=f"is below draft.ngram_min, which is {draft['ngram_min']}",
            hint="the longest is tried first, then shorter ones",
        )
    budget = read(tree, "cache.kv_budget")
    if budget not in UNBOUNDED:
        reason = f"cache.kv_budget is {budget}: a verify round takes more KV than it keeps"
        yield Clamp(key="draft.kind", asked=draft["kind"], used="none", reason=reason)
