"""KV and what outlives a request: which stores there are, and where their files lie."""

from collections.abc import Iterator
from pathlib import Path

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.rules.finding import Finding, Settled, Tree
from mlxcel.graph.spec import Clamp

STORAGE = "cache.decode_storage"
BUDGET = "cache.kv_budget"
PROMPT = "cache.prompt.enabled"
CAPACITY = "cache.prompt.capacity_bytes"
RAM = "cache.prompt.ram_mib"
REUSE = "cache.prompt.reuse"
SNAPSHOTS = "cache.snapshot.capacity_bytes"
CONVERSATIONS = "cache.conversations.enabled"
SAVED = "cache.conversations.disk_dir"
DISK = "cache.disk.path"
PREFIXES = "cache.prefix_dir"
SLOTS = "cache.slot_save_path"
MIB = 1 << 20
OFF = "the prompt cache is off"
GUARDED = frozenset({"nemotron_h"})
"""Families whose requests are read cold when their memory is guarded (engine-scheduler, 10)."""


def dense_storage(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """The budget counts blocks either way."""
    if read(tree, STORAGE) == "paged":
        reason = "there is no paged kernel for MLX in Python"
        yield Clamp(key=STORAGE, asked="paged", used="dense", reason=reason)


def unbounded_kv(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """One spelling for the worker: 0."""
    if read(tree, BUDGET) in ("none", None):
        yield Settled(key=BUDGET, used=0)


def memory_of_prompt_cache(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """0 MiB is the interface's other way of switching the cache off; bytes beat MiB."""
    mebibytes, asked = read(tree, RAM), read(tree, CAPACITY)
    if mebibytes is None:
        return
    if asked is not None:
        if asked != mebibytes * MIB:
            yield f"{RAM}={mebibytes} has no effect: {CAPACITY}={asked} beats it"
    elif mebibytes == 0 and read(tree, PROMPT):
        yield Clamp(key=PROMPT, asked=True, used=False, reason=f"{RAM} is 0")


def one_by_one_is_cold(tree: Tree, card: Card | None) -> Iterator[Finding]:
    if read(tree, "scheduler.no_batch") and read(tree, PROMPT):
        reason = "scheduler.no_batch reads every prompt from its beginning"
        yield Clamp(key=PROMPT, asked=True, used=False, reason=reason)


def stores_of_prompt_cache(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """After all that may switch the prompt cache off: what is a part of it goes with it. The
    worker keeps no snapshots then either; their bounds stay, for they are shown."""
    if read(tree, PROMPT):
        return
    for key in (DISK, PREFIXES):
        if (asked := read(tree, key)) is not None:
            yield Clamp(key=key, asked=asked, used=None, reason=OFF)
    if read(tree, CONVERSATIONS):
        yield f"{CONVERSATIONS} keeps no KV: {OFF} ({PROMPT}=true switches it on)"


def guarded_snapshots(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """What such a request may need is reckoned as if it were alone and cold."""
    budget = read(tree, "limits.request_memory_budget")
    if card is None or card.family not in GUARDED or budget is None:
        return
    asked = read(tree, SNAPSHOTS)
    if asked != 0:
        reason = f"family {card.family} reads prompts cold under limits.request_memory_budget"
        yield Clamp(key=SNAPSHOTS, asked=asked, used=0, reason=reason)


def kv_stays_in_place(tree: Tree, card: Card | None) -> Iterator[Finding]:
    least = read(tree, REUSE)
    if least > 0:
        yield Problem(
            key=REUSE,
            value=least,
            rule="cannot work: KV is never moved to other positions of a prompt",
            hint="0; what prompts have in common at their beginning is reused without it",
        )


def files_of_caches(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """Workers and handlers get whole paths."""
    root = Path(read(tree, "model.cache_dir") or "~/.cache/mlxcel")
    if read(tree, DISK) == "auto":
        yield Settled(key=DISK, used=_whole(root / "prompt-cache"))
    if read(tree, CONVERSATIONS) and read(tree, SAVED) is None:
        yield Settled(key=SAVED, used=_whole(root / "conversations"))
    for key in (DISK, SAVED, PREFIXES, SLOTS):
        asked = read(tree, key)
        if asked not in (None, "auto") and _whole(Path(asked)) != asked:
            yield Settled(key=key, used=_whole(Path(asked)))


def _whole(path: Path) -> str:
    return str(path.expanduser().absolute())
