"""POST /v1/chat/completions/control: a stream is steered while it runs (http-native, 12)."""

from typing import Any

from mlxcel.core.errors import BadRequest

END_THINKING = "reasoning_end"
DONE: dict[str, Any] = {"success": True}
NOT_LIVE: dict[str, Any] = {
    "success": False,
    "message": "no active completion for this id",
}
NOT_ARMED: dict[str, Any] = {
    "success": False,
    "message": "reasoning control not enabled for this completion",
}


def read_control(value: object) -> str:
    """The id of the answer whose thinking is to end."""
    fields = value if isinstance(value, dict) else {}
    name, action = fields.get("id"), fields.get("action")
    if not isinstance(name, str) or not name:
        raise BadRequest("missing completion id", param="id")
    if action != END_THINKING:
        raise BadRequest("unknown control action", param="action")
    return name
