"""GET /v1/internal/mtp-policy: whether heads that predict several tokens are put to use. No engine
here has such heads yet, so that the policy is never anything but unavailable."""

from typing import Any

SCHEMA_VERSION = 1


def unavailable_body(*, is_ready: bool) -> dict[str, Any]:
    """`is_ready`: the worker is there, and has nothing to decide."""
    return {
        "schema_version": SCHEMA_VERSION,
        "state": "unavailable",
        "reason": "no_mtp_dispatch" if is_ready else "worker_not_ready",
        "decline_detail": None,
        "verdict": None,
        "mtp_enabled": None,
        "target": None,
        "drafter": None,
        "hardware": None,
        "block_size": None,
        "acceptance_rate": None,
        "samples": 0,
        "samples_required": 0,
        "samples_remaining": None,
    }
