"""Rows that run together, and the context each of them has."""

from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.core.window import slot_count, slot_share
from mlxcel.graph.rules.finding import Finding, Settled, Tree
from mlxcel.graph.spec import Clamp

AUTO_ROWS = 4
PARALLEL = "scheduler.parallel"
WIDTH = "scheduler.max_batch_size"
MAX_TOKENS = "live.sampling.max_tokens"
LEAST_WINDOW = 512
"""Tokens a slot must have at least: less holds no conversation."""


def window_told(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """The worker reads the same number as the plan, off the same card; `family` is for
    /v1/settings."""
    if card is not None:
        yield Settled(key="model.train_window", used=card.train_window)
        yield Settled(key="model.family", used=card.family)


def row_count(tree: Tree, card: Card | None) -> Iterator[Finding]:
    if read(tree, PARALLEL) == -1:
        yield Settled(key=PARALLEL, used=AUTO_ROWS)


def single_row(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """Before the context is divided: one row gets all of it."""
    reason = _why_one_row(tree, card)
    asked = {key: read(tree, key) for key in (PARALLEL, WIDTH)}
    for key, rows in asked.items():
        if reason and rows is not None and rows > 1:
            yield Clamp(key=key, asked=rows, used=1, reason=reason)


def batch_width(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """From here on the plan has one number of rows that run together."""
    if read(tree, WIDTH) is None:
        yield Settled(key=WIDTH, used=slot_count(tree["scheduler"]))


def window_of_model(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """More context than the model was trained on gives memory away for noise."""
    total, rows = read(tree, "limits.ctx_size"), slot_count(tree["scheduler"])
    if card is None or not 0 < card.train_window < slot_share(total, rows):
        return
    reason = f"{card.name} was trained on {card.train_window} tokens"
    if rows > 1:
        reason += f", and there are {rows} slots"
    yield Clamp(key="limits.ctx_size", asked=total, used=card.train_window * rows, reason=reason)


def answer_fits_slot(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """After the context is divided. A PATCH is held to the same bound (config/live_rules.py)."""
    asked = read(tree, MAX_TOKENS)
    share = slot_share(read(tree, "limits.ctx_size"), slot_count(tree["scheduler"]))
    if 0 < share < asked:
        reason = f"a slot has {share} tokens of context"
        yield Clamp(key=MAX_TOKENS, asked=asked, used=share, reason=reason)


def least_window(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """Not known before the model is: it may run one row, and have been trained on less."""
    if card is None:
        return
    total, rows = read(tree, "limits.ctx_size"), slot_count(tree["scheduler"])
    window = slot_share(total, rows)
    least = min(LEAST_WINDOW, card.train_window or LEAST_WINDOW)
    if total > 0 and window < least:
        yield Problem(
            key="limits.ctx_size",
            value=total,
            rule=f"gives {window} tokens per slot ({total} / {rows}), below the least of {least}",
            hint=f"use at least {least * rows}, fewer slots ({PARALLEL}), or 0",
        )


def _why_one_row(tree: Tree, card: Card | None) -> str:
    """Empty where several rows may run."""
    if read(tree, "scheduler.no_batch"):
        return "scheduler.no_batch runs one request at a time"
    if card is not None and not card.can_batch:
        return f"family {card.family} runs one row: {card.reason}"
    return ""
