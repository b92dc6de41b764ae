"""What a sound configuration means for a language-model server: values that give way to others,
combinations that cannot run, and things worth a warning.

A rule is a function of the tree and the card. It sees what the rules before it have rewritten,
so those that rewrite come first. `card` is None where the model was not looked at.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.core.window import slot_count, slot_share
from mlxcel.graph.spec import Clamp

Tree = Mapping[str, Any]

AUTO_ROWS = 4
PARALLEL = "scheduler.parallel"
WIDTH = "scheduler.max_batch_size"
MAX_TOKENS = "live.sampling.max_tokens"
STORAGE = "cache.decode_storage"
BUDGET = "cache.kv_budget"
ADAPTIVE = "generation.sampling.adaptive"
THINKING = "generation.reasoning.enabled"
ALIAS = "generation.reasoning.alias_field"
LANGUAGES = "live.lang_bias"
LEAST_WINDOW = 512
"""Tokens a slot must have at least: less holds no conversation."""
BAD_PREFIX = re.compile(r"//|[?#\s\x00-\x1f\x7f]")
SUPPLIERS = {"model": "model", "chat": "engine", "generate": "generation"}
"""Port to the group whose options provide it, for hints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A value left open (`auto`, -1) that is decided as anybody would expect: no news."""

    key: str
    used: object


Finding = Clamp | Settled | Problem | str
"""A plain string is a warning."""
Rule = Callable[[Tree, Card | None], Iterable[Finding]]


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


def dense_storage(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """The budget counts blocks either way."""
    if read(tree, STORAGE) == "paged":
        reason = "there is no paged kernel for MLX in Python"
        yield Clamp(key=STORAGE, asked="paged", used="dense", reason=reason)


def unbounded_kv(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """One spelling for the worker: 0."""
    if read(tree, BUDGET) in ("none", None):
        yield Settled(key=BUDGET, used=0)


def adaptive_named(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """A target alone does not arm the sampler: the list of samplers has to name it."""
    target = read(tree, f"{ADAPTIVE}.target")
    if target >= 0 and not read(tree, f"{ADAPTIVE}.named"):
        yield (
            f"{ADAPTIVE}.target={target} has no effect: the list of samplers does not name "
            f"adaptive_p (--samplers, {ADAPTIVE}.named=true)"
        )


def reasoning_words(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """YAML reads `on` and `off` as booleans; `none` is how the interface says no alias."""
    enabled = read(tree, THINKING)
    if isinstance(enabled, bool):
        yield Settled(key=THINKING, used="on" if enabled else "off")
    if read(tree, ALIAS) == "none":
        yield Settled(key=ALIAS, used=None)


def languages_named(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """Flags set a policy and exceptions one by one; without a language they are for nothing."""
    bias = read(tree, LANGUAGES)
    if bias is None or (card is None and read(tree, "generation.lang_bias.file") is not None):
        return
    if not bias.get("bias_set", {}).get("ordered"):
        yield f"{LANGUAGES} has no effect: it names no language (--lang-bias ja=-5)"
        yield Settled(key=LANGUAGES, used=None)


def settings_routes(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """`auto`: whoever may reach the server may change it, or has shown a key."""
    if read(tree, "routes.settings") != "auto":
        return
    if _is_loopback(read(tree, "server.host")) or _has_keys(tree):
        yield Settled(key="routes.settings", used=True)
        return
    reason = "other machines can reach it and no key is set; routes.settings=true opens them"
    yield Clamp(key="routes.settings", asked="auto", used=False, reason=reason)


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


def model_named(tree: Tree, card: Card | None) -> Iterator[Finding]:
    model = tree["model"]
    if model["kind"] == "mlx" and model["path"] is None and model["source"] is None:
        yield Problem(
            key="model.path",
            value=None,
            rule="needs a model: a folder, owner/name, or a name of mlx-community",
            hint="mlxcel --model NAME",
        )


def engine_fits_model(tree: Tree, card: Card | None) -> Iterator[Finding]:
    engine, model = read(tree, "engine.kind"), read(tree, "model.kind")
    if engine != model:
        yield Problem(
            key="engine.kind",
            value=engine,
            rule=f"cannot run a model of the kind {model}",
            hint=f"engine={model}, or another model",
        )


def adapters_have_weights(tree: Tree, card: Card | None) -> Iterator[Finding]:
    adapters = read(tree, "model.lora.adapters")
    if adapters and read(tree, "model.kind") == "echo":
        yield Problem(
            key="model.lora.adapters",
            value=[adapter["path"] for adapter in adapters],
            rule="cannot be applied: a scripted model has no weights",
            hint="leave them out, or choose another model",
        )


def prefix_grammar(tree: Tree, card: Card | None) -> Iterator[Finding]:
    prefix = read(tree, "server.api_prefix")
    is_good = prefix.startswith("/") and not prefix.endswith("/") and not BAD_PREFIX.search(prefix)
    if prefix and not is_good:
        yield Problem(
            key="server.api_prefix",
            value=prefix,
            rule="is not a path prefix: it starts with /, does not end with one, and has no //, "
            "?, #, space or control character",
            hint="like /llm",
        )


def tcp_listener(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """The two spellings that llama-server takes for a Unix socket."""
    host = read(tree, "server.host")
    if host.endswith(".sock") or "/" in host:
        yield Problem(
            key="server.host",
            value=host,
            rule="is no address, and a Unix socket is not built yet",
            hint="give an address, like 127.0.0.1",
        )


def open_listener(tree: Tree, card: Card | None) -> Iterator[Finding]:
    host = read(tree, "server.host")
    if not _is_loopback(host) and not _has_keys(tree):
        yield (
            f"{host} is open to other machines and no API key is set; "
            "give keys with --api-key-file or server.api_keys"
        )


def prefixed_health(tree: Tree, card: Card | None) -> Iterator[Finding]:
    prefix = read(tree, "server.api_prefix")
    if prefix and _has_keys(tree):
        yield f"{prefix}/health needs a key: only the paths without a prefix are exempt"


def worker_placement(tree: Tree, card: Card | None) -> Iterator[Finding]:
    placement = read(tree, "workers.placement")
    if placement != "process":
        yield f"workers.placement={placement}: a crash of the worker takes the server along"


RULES: tuple[Rule, ...] = (
    window_told,
    row_count,
    single_row,
    batch_width,
    window_of_model,
    answer_fits_slot,
    dense_storage,
    unbounded_kv,
    adaptive_named,
    reasoning_words,
    languages_named,
    settings_routes,
    least_window,
    model_named,
    engine_fits_model,
    adapters_have_weights,
    prefix_grammar,
    tcp_listener,
    open_listener,
    prefixed_health,
    worker_placement,
)


def _why_one_row(tree: Tree, card: Card | None) -> str:
    """Empty where several rows may run."""
    if read(tree, "scheduler.no_batch"):
        return "scheduler.no_batch runs one request at a time"
    if card is not None and not card.can_batch:
        return f"family {card.family} runs one row: {card.reason}"
    return ""


def _has_keys(tree: Tree) -> bool:
    return bool(read(tree, "server.api_keys") or read(tree, "server.api_key_files"))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
