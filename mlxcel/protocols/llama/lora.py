"""`/lora-adapters`: the adapters and their scales."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.core.ports import Adapter
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.llama.request_lora import NAME, read_lora


def adapters_body(adapters: Sequence[Adapter]) -> list[dict[str, Any]]:
    return [
        {
            "id": adapter.id,
            "path": adapter.path,
            "scale": adapter.scale,
            "task_name": "",
            "prompt_prefix": "",
        }
        for adapter in adapters
    ]


def read_scales(sent: object) -> Mapping[int, float]:
    """By adapter; of two entries for one the later counts. Raises BadRequest."""
    if not isinstance(sent, list):
        raise BadRequest("Request body must be an array")
    # The same entries as in the field of a request.
    return dict(read_lora(Reader({NAME: sent})) or ())


def changed_body() -> dict[str, Any]:
    return {"success": True}
