"""The body of /health: may a request come, and if not, why not."""

from collections.abc import Sequence
from typing import Any

from mlxcel.core.ports import ServedModel
from mlxcel.core.status import State, WorkerStats, WorkerStatus
from mlxcel.protocols.mlxcel.mtp_policy import is_configured, policy_body

WORDS = {
    State.LOADING: "loading model",
    State.RESTARTING: "restarting",
    State.FAILED: "failed",
    State.STOPPED: "failed",
}
DRAINING = "draining"
NO_SLOT = "no slot available"
OK = "ok"
TOOL_CALL_PARSER = "mlxcel"
"""Its own: which format a model calls tools in is found out by its template."""


def health_word(
    chat: WorkerStatus | None,
    all_: Sequence[WorkerStatus],
    *,
    draining: bool,
    wants_slot: bool = False,
) -> str:
    """`ok` means that a request sent now is taken. That it would start at once is asked by
    `wants_slot`: a probe that asks for health alone must not end a server for being busy."""
    if draining:
        return DRAINING
    sick = next((status for status in all_ if status.state is not State.OK), None)
    if sick is not None:
        return WORDS[sick.state]
    if wants_slot and chat is not None and chat.stats.active >= chat.stats.slots:
        return NO_SLOT
    return OK


def health_body(
    word: str,
    model: ServedModel | None,
    chat: WorkerStatus | None,
    *,
    has_tool_parser: bool,
    front_pid: int,
) -> dict[str, Any]:
    """The same keys in every state; `error` comes on top unless the word is `ok`, and the policy
    of MTP where that is configured."""
    stats = chat.stats if chat is not None else WorkerStats(slots=0)
    body: dict[str, Any] = {
        "status": word,
        "model": model.id if model is not None else None,
        "batch": {
            "active_sequences": stats.active,
            "queue_depth": stats.waiting,
            "max_batch_size": stats.slots,
        },
        "observability": _counters(stats) | _policy(chat),
        "context_size": model.context_window if model is not None else 0,
        "tool_call_parser": TOOL_CALL_PARSER if has_tool_parser else None,
        "worker": _worker(chat),
        "front": {"pid": front_pid},
    }
    return body if word == OK else body | {"error": _error(word, chat)}


def _counters(stats: WorkerStats) -> dict[str, Any]:
    return {
        "sequences_started": stats.started,
        "sequences_completed": stats.completed,
        "prompt_tokens": stats.prompt_tokens,
        "decode_tokens": stats.decode_tokens,
        "decode_steps": stats.decode_steps,
        "decode_lookahead_steps": stats.lookahead_steps,
        "decode_rows": stats.decode_rows,
        "decode_batch_sizes": stats.batch_sizes,
        "n_tokens_max": stats.longest,
        "prefill_chunks": stats.prefill_chunks,
        "prefill_grants": stats.prefill_grants,
        "mixed_steps": stats.mixed_steps,
        "preemptions": stats.preemptions,
        "draft_rounds": stats.draft_rounds,
        "draft_proposed": stats.draft_proposed,
        "draft_accepted": stats.draft_accepted,
        "lang_bias_applied": stats.language_steps,
        "lang_bias_tokens_suppressed": stats.language_suppressed,
        "lang_bias_byte_fragment_suppressions": stats.language_fragments,
        "kv_bytes": stats.kv_bytes,
        "kv_blocks": stats.kv_blocks,
        "kv_block_budget": stats.kv_block_budget,
    }


def _policy(chat: WorkerStatus | None) -> dict[str, Any]:
    if chat is None or not is_configured(chat):
        return {}
    return {"mtp_policy": policy_body(chat)}


def _worker(chat: WorkerStatus | None) -> dict[str, Any] | None:
    if chat is None:
        return None
    return {
        "pid": chat.pid,
        "restarts": chat.restarts,
        "state": chat.state.value,
        "detail": chat.detail,
    }


def _error(word: str, chat: WorkerStatus | None) -> dict[str, Any]:
    """While it loads, the words are those that clients of llama-server wait for."""
    is_sick = word in WORDS.values() and word != WORDS[State.LOADING]
    detail = chat.detail if chat is not None and is_sick else ""
    message = "Loading model" if word == WORDS[State.LOADING] else word
    if detail:
        message = f"{message}: {detail}"
    return {"code": 503, "message": message, "type": "unavailable_error"}
