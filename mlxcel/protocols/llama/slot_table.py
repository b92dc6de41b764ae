"""GET /slots: what each slot does, or did last."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.ports import SlotState
from mlxcel.core.request import GenerationRequest
from mlxcel.core.settings import FixedDefaults
from mlxcel.protocols.llama.settings import UNBOUNDED, settings_body

OF_THE_ANSWER = ("stream", "timings_per_token")
"""How an answer is told; a slot knows nothing of that."""


def slots_body(
    states: Sequence[SlotState], fixed: FixedDefaults, *, drafts: bool, with_text: bool
) -> list[Mapping[str, Any]]:
    """`drafts`: tokens are proposed to the rows of the model."""
    about = {"speculative": drafts}
    return [_slot_body(state, fixed, about, with_text=with_text) for state in states]


def _slot_body(
    state: SlotState, fixed: FixedDefaults, about: Mapping[str, Any], *, with_text: bool
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": state.id,
        "n_ctx": state.window,
        "context_size": state.window,
        **about,
        "is_processing": state.is_busy,
    }
    if state.task is not None:
        body |= _task_body(state, fixed)
        if with_text:
            body |= {"prompt": state.prompt, "generated": state.generated}
    return body


def _task_body(state: SlotState, fixed: FixedDefaults) -> dict[str, Any]:
    params = {} if state.request is None else _params_body(state.request, fixed)
    return {
        "id_task": state.task,
        "n_prompt_tokens": state.prompt_tokens,
        "n_prompt_tokens_processed": state.prompt_tokens - state.cached_tokens,
        "n_prompt_tokens_cache": state.cached_tokens,
        "params": params,
        "next_token": [
            {
                "has_next_token": state.has_next_token,
                "has_new_line": state.has_new_line,
                "n_remain": _remaining(params.get("max_tokens", UNBOUNDED), state.decoded),
                "n_decoded": state.decoded,
            }
        ],
    }


def _params_body(request: GenerationRequest, fixed: FixedDefaults) -> dict[str, Any]:
    body = settings_body(request, fixed)
    return {name: value for name, value in body.items() if name not in OF_THE_ANSWER}


def _remaining(most: int, decoded: int) -> int:
    """-1: up to the window."""
    return UNBOUNDED if most == UNBOUNDED else max(0, most - decoded)
