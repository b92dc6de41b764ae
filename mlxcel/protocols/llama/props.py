"""GET /props: what the server, its model and its defaults are like."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mlxcel import __version__
from mlxcel.core.ports import ModelFacts
from mlxcel.core.settings import Settings
from mlxcel.core.status import ModelInfo
from mlxcel.protocols.base import ReadRules
from mlxcel.protocols.llama import completion
from mlxcel.protocols.llama.settings import settings_body


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The server and its model, as far as they are not `ModelFacts`."""

    alias: str
    slots: int
    window: int
    """Tokens a slot holds; 0: unbounded, or not known yet."""
    model: ModelInfo | None
    """None until the worker was ready once."""
    kv_mode: str
    kv_bits: int | None
    max_kv: int
    has_slots: bool
    has_metrics: bool
    has_settings: bool


def props_body(served: Served, facts: ModelFacts, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are those of a request that asks for nothing."""
    return {
        "default_generation_settings": {"params": params, "n_ctx": served.window},
        "total_slots": served.slots,
        "model_alias": served.alias,
        "model_ftype": facts.weights_type,
        "model_path": facts.path,
        "precision": None if served.model is None else served.model.precision,
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": None,
        "endpoint_slots": served.has_slots,
        "endpoint_props": True,
        "endpoint_metrics": served.has_metrics,
        "endpoint_settings": served.has_settings,
        "ui": False,
        "ui_settings": {},
        "chat_template": facts.chat_template,
        "chat_template_caps": _caps_body(facts),
        "bos_token": facts.bos_token,
        "eos_token": facts.eos_token,
        "build_info": f"mlxcel-{__version__}",
        "is_sleeping": False,
        "cors_proxy_enabled": False,
        "kv_cache_mode": served.kv_mode,
        "kv_bits": served.kv_bits,
        "speculative": _drafts_body(served.model),
        "geometry": _geometry_body(served),
        "capabilities": {"generation": True},
    }


def _drafts_body(model: ModelInfo | None) -> dict[str, Any]:
    draft = None if model is None else model.draft
    if draft is None:
        return {"model": None, "kind": None, "n_max": 0}
    return {"model": draft.model, "kind": draft.kind, "n_max": draft.max_draft}


def default_params(settings: Settings, rules: ReadRules) -> dict[str, Any]:
    """Of a completion that brings no field of its own."""
    read = completion.read(
        {"prompt": ""}, request_id="", settings=settings, received_s=0.0, rules=rules
    )
    shape = read.shape
    return settings_body(
        read.request,
        shape.fixed,
        n_predict=shape.n_predict,
        is_seed_random=shape.is_seed_random,
    )


def changed_body() -> dict[str, Any]:
    """To a POST, which changes nothing."""
    return {"success": True}


def _caps_body(facts: ModelFacts) -> dict[str, bool]:
    return {f"supports_{name}": value for name, value in asdict(facts.abilities).items()}


def _geometry_body(served: Served) -> dict[str, int]:
    """There is no micro-batch: a step reads all of its chunk at once."""
    chunk = 0 if served.model is None else served.model.prefill_chunk
    return {
        "n_batch": chunk,
        "n_ubatch": chunk,
        "n_batch_decode": served.slots,
        "n_kv_max": served.max_kv,
    }
