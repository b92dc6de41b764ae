"""GET /v1/internal/mtp-policy: whether heads that predict several tokens are put to use, and how
that was decided. /health says the same where such heads are configured."""

from typing import Any

from mlxcel.core.status import MtpPolicyReport, MtpReason, MtpState, State, WorkerStatus

SCHEMA_VERSION = 1
KIND = "mtp"
"""As `DraftInfo` tells it."""


def policy_body(chat: WorkerStatus) -> dict[str, Any]:
    """Every key in every state."""
    said = _report(chat)
    return {
        "schema_version": SCHEMA_VERSION,
        "state": said.state,
        "reason": said.reason,
        "decline_detail": said.decline_detail,
        "verdict": said.verdict,
        "mtp_enabled": said.mtp_enabled,
        "target": said.target,
        "drafter": said.drafter,
        "hardware": said.hardware,
        "block_size": said.block_size,
        "acceptance_rate": said.acceptance_rate,
        "samples": said.samples,
        "samples_required": said.samples_required,
        "samples_remaining": said.samples_remaining,
    }


def is_configured(chat: WorkerStatus) -> bool:
    """Of a worker that is away: what it said when it was there."""
    draft = None if chat.model is None else chat.model.draft
    return chat.stats.mtp_policy is not None or (draft is not None and draft.kind == KIND)


def _report(chat: WorkerStatus) -> MtpPolicyReport:
    if chat.state is not State.OK:
        return _unavailable(MtpReason.WORKER_NOT_READY)
    said = chat.stats.mtp_policy
    return _unavailable(MtpReason.NO_MTP_DISPATCH) if said is None else said


def _unavailable(reason: MtpReason) -> MtpPolicyReport:
    return MtpPolicyReport(state=MtpState.UNAVAILABLE, reason=reason)
