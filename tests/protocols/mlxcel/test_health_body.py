"""Which word /health says, and what stands beside it."""

from typing import Any

import pytest

from mlxcel.core.status import State, WorkerStats, WorkerStatus
from mlxcel.protocols.mlxcel.health import health_body, health_word

KEYS = {
    "status",
    "model",
    "batch",
    "observability",
    "context_size",
    "tool_call_parser",
    "worker",
    "front",
}


def body_of(
    word: str, status: WorkerStatus | None, *, has_tool_parser: bool = True
) -> dict[str, Any]:
    return health_body(word, None, status, has_tool_parser=has_tool_parser, front_pid=1)


def chat(state: State = State.OK, active: int = 0, waiting: int = 0) -> WorkerStatus:
    stats = WorkerStats(active=active, waiting=waiting, slots=2, started=3, completed=1)
    return WorkerStatus(name="chat", state=state, detail="step", pid=7, restarts=1, stats=stats)


@pytest.mark.parametrize(
    ("status", "draining", "word"),
    [
        pytest.param(chat(), False, "ok", id="ok"),
        pytest.param(chat(active=1, waiting=5), False, "ok", id="queue-does-not-matter"),
        pytest.param(chat(active=2), False, "no slot available", id="full"),
        pytest.param(chat(State.LOADING), False, "loading model", id="loading"),
        pytest.param(chat(State.RESTARTING), False, "restarting", id="restarting"),
        pytest.param(chat(State.FAILED), False, "failed", id="failed"),
        pytest.param(chat(State.STOPPED), False, "failed", id="stopped"),
        pytest.param(chat(State.RESTARTING), True, "draining", id="draining-wins"),
    ],
)
def test_word(status: WorkerStatus, draining: bool, word: str) -> None:
    assert health_word(status, [status], draining=draining, wants_slot=True) == word


def test_a_busy_worker_is_well() -> None:
    assert health_word(chat(active=2), [chat(active=2)], draining=False) == "ok"


def test_a_side_worker_that_is_down_counts() -> None:
    assert health_word(chat(), [chat(), chat(State.FAILED)], draining=False) == "failed"


def test_body_has_the_same_keys_in_every_state() -> None:
    assert set(body_of("ok", chat())) == KEYS
    assert set(body_of("restarting", None)) == KEYS | {"error"}


def test_body_shows_slots_counters_and_the_worker() -> None:
    body = body_of("no slot available", chat(active=2, waiting=1))
    assert body["batch"] == {"active_sequences": 2, "queue_depth": 1, "max_batch_size": 2}
    assert body["observability"]["sequences_started"] == 3
    assert body["worker"] == {"pid": 7, "restarts": 1, "state": "ok", "detail": "step"}
    assert body["error"] == {
        "code": 503,
        "message": "no slot available",
        "type": "unavailable_error",
    }


def test_a_sick_worker_says_why() -> None:
    body = body_of("restarting", chat(State.RESTARTING))
    assert body["error"]["message"] == "restarting: step"


def test_a_worker_that_loads_says_so_in_the_words_clients_wait_for() -> None:
    body = body_of("loading model", chat(State.LOADING))
    assert (body["status"], body["worker"]["detail"]) == ("loading model", "step")
    assert body["error"] == {
        "code": 503,
        "message": "Loading model",
        "type": "unavailable_error",
    }


def test_every_counter_of_the_worker_is_shown() -> None:
    shown_elsewhere = {"active", "waiting", "slots", "mtp_policy"}
    names = [name for name in WorkerStats.__struct_fields__ if name not in shown_elsewhere]
    stats = WorkerStats(**{name: place for place, name in enumerate(names, start=1)})
    status = WorkerStatus(name="chat", state=State.OK, stats=stats)
    body = body_of("ok", status)
    assert sorted(body["observability"].values()) == list(range(1, len(names) + 1))
    assert {name: body["observability"][name] for name in ("kv_blocks", "preemptions")} == {
        "kv_blocks": stats.kv_blocks,
        "preemptions": stats.preemptions,
    }


@pytest.mark.parametrize(("has_parser", "shown"), [(True, "mlxcel"), (False, None)])
def test_the_parser_of_tool_calls_is_ours(has_parser: bool, shown: str | None) -> None:
    assert body_of("ok", chat(), has_tool_parser=has_parser)["tool_call_parser"] == shown
