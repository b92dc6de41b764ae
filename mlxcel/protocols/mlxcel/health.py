"""The body of /health: may a request come, and if not, why not."""

from collections.abc import Sequence
from typing import Any

from mlxcel.core.ports import ServedModel
from mlxcel.core.status import State, WorkerStats, WorkerStatus

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
"""Which format a model calls tools in is found out by its template."""


def health_word(chat: WorkerStatus | None, all_: Sequence[WorkerStatus], *, draining: bool) -> str:
    """`ok` means that a request sent now would start at once."""
    if draining:
        return DRAINING
    sick = next((status for status in all_ if status.state is not State.OK), None)
    if sick is not None:
        return WORDS[sick.state]
    if chat is not None and chat.stats.active >= chat.stats.slots:
        return NO_SLOT
    return OK


def health_body(
    word: str, model: ServedModel | None, chat: WorkerStatus | None, *, front_pid: int
) -> dict[str, Any]:
    """The same keys in every state; `error` comes on top unless the word is `ok`."""
    stats = chat.stats if chat is not None else WorkerStats(slots=0)
    body: dict[str, Any] = {
        "status": word,
        "model": model.id if model is not None else None,
        "batch": {
            "active_sequences": stats.active,
            "queue_depth": stats.waiting,
            "max_batch_size": stats.slots,
        },
        "observability": _counters(stats),
        "context_size": model.context_window if model is not None else 0,
        "tool_call_parser": TOOL_CALL_PARSER,
        "worker": _worker(chat),
        "front": {"pid": front_pid},
    }
    return body if word == OK else body | {"error": _error(word, chat)}


def _counters(stats: WorkerStats) -> dict[str, int]:
    return {
        "sequences_started": stats.started,
        "sequences_completed": stats.completed,
        "prompt_tokens": stats.prompt_tokens,
        "decode_tokens": stats.decode_tokens,
        "decode_steps": stats.decode_steps,
        "decode_lookahead_steps": stats.lookahead_steps,
        "prefill_chunks": stats.prefill_chunks,
        "prefill_grants": stats.prefill_grants,
        "mixed_steps": stats.mixed_steps,
        "preemptions": stats.preemptions,
        "lang_bias_applied": stats.language_steps,
        "lang_bias_tokens_suppressed": stats.language_suppressed,
        "lang_bias_byte_fragment_suppressions": stats.language_fragments,
        "kv_bytes": stats.kv_bytes,
        "kv_blocks": stats.kv_blocks,
        "kv_block_budget": stats.kv_block_budget,
    }


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
    detail = chat.detail if chat is not None and word in WORDS.values() else ""
    message = "Loading model" if word == "loading model" else word
    if detail:
        message = f"{message}: {detail}"
    return {"code": 503, "message": message, "type": "unavailable_error"}
