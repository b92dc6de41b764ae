"""The policy of MTP as clients see it, byte for byte. A changed golden is a changed wire format:
say so in the change."""

from pathlib import Path

import orjson
import pytest

from mlxcel.core.status import (
    DraftInfo,
    ModelInfo,
    MtpPolicyReport,
    MtpReason,
    MtpState,
    MtpVerdict,
    State,
    WorkerStats,
    WorkerStatus,
)
from mlxcel.protocols.mlxcel.health import health_body
from mlxcel.protocols.mlxcel.mtp_policy import policy_body
from tests.wire_schemas import faults, told

ROOT = Path(__file__).parents[2] / "golden" / "mlxcel" / "mtp_policy"
PROFILING = MtpPolicyReport(
    state=MtpState.PROFILING,
    mtp_enabled=True,
    target="t",
    drafter="d",
    hardware="h",
    block_size=3,
    acceptance_rate=0.71,
    samples=2,
    samples_required=4,
    samples_remaining=2,
)
SETTLED = MtpPolicyReport(
    state=MtpState.SETTLED,
    verdict=MtpVerdict.DECLINE,
    mtp_enabled=False,
    target="t",
    drafter="d",
    hardware="h",
    block_size=3,
    acceptance_rate=0.5,
    samples=4,
    samples_required=4,
)
NAMED = {"target": "t", "drafter": "d", "hardware": "h", "block_size": 3}
REPORTS = {
    "profiling": PROFILING,
    "settled": SETTLED,
    "forced": MtpPolicyReport(state=MtpState.FORCED, mtp_enabled=True, **NAMED),
    "exactness_declined": MtpPolicyReport(
        state=MtpState.EXACTNESS_DECLINED,
        decline_detail="input 1 of 3 differs",
        mtp_enabled=False,
        **NAMED,
    ),
    "adaptive_disabled": MtpPolicyReport(
        state=MtpState.UNAVAILABLE,
        reason=MtpReason.ADAPTIVE_DISABLED,
        mtp_enabled=False,
        **NAMED,
    ),
    "no_mtp_dispatch": None,
    "worker_not_ready": PROFILING,
}


def chat(
    report: MtpPolicyReport | None, state: State = State.OK, kind: str | None = None
) -> WorkerStatus:
    return WorkerStatus(
        name="chat",
        state=state,
        stats=WorkerStats(mtp_policy=report),
        model=None if kind is None else drafting(kind),
    )


def drafting(kind: str) -> ModelInfo:
    return ModelInfo(
        family="llama",
        vocab_size=264,
        context_window=0,
        train_window=512,
        hidden_size=64,
        parameters=1,
        weights_bytes=4,
        precision="float32",
        device="cpu",
        draft=DraftInfo(kind=kind, model="d", max_draft=2),
    )


@pytest.mark.parametrize("name", REPORTS)
def test_body_is_as_recorded(name: str) -> None:
    state = State.LOADING if name == "worker_not_ready" else State.OK
    body = policy_body(chat(REPORTS[name], state))
    assert orjson.dumps(body) == (ROOT / f"{name}.json").read_bytes()
    assert not faults(told("mtp_policy"), body)


def test_every_golden_is_compared() -> None:
    assert {path.stem for path in ROOT.iterdir()} == set(REPORTS)


@pytest.mark.parametrize("state", [state for state in State if state is not State.OK])
def test_a_worker_that_is_away_decides_nothing(state: State) -> None:
    assert policy_body(chat(None, state))["reason"] == "worker_not_ready"


@pytest.mark.parametrize(
    ("status", "is_shown"),
    [
        pytest.param(None, False, id="no-worker"),
        pytest.param(chat(None), False, id="loading"),
        pytest.param(chat(None, kind="full-model"), False, id="another-kind"),
        pytest.param(chat(PROFILING), True, id="said"),
        pytest.param(chat(None, State.RESTARTING, kind="mtp"), True, id="away"),
    ],
)
def test_health_shows_it_where_it_is_configured(
    status: WorkerStatus | None, is_shown: bool
) -> None:
    body = health_body("ok", None, status, has_tool_parser=True, front_pid=1)
    expected = policy_body(status) if is_shown and status is not None else None
    assert body["observability"].get("mtp_policy") == expected
    assert not faults(told("health"), orjson.loads(orjson.dumps(body)))
