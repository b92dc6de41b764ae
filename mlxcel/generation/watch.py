"""What the worker has to watch over while a row decodes: think block, form of the answer, loops."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from mlxcel.core.errors import BadRequest
from mlxcel.core.request import ChatPrompt, GenerationRequest
from mlxcel.core.steering import Constraint, LoopGuard, Thinking
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.structured import compiled
from mlxcel.generation.triggers import check_triggers, looked_for
from mlxcel.text.prefill import Prompt
from mlxcel.text.thinking import Marks, Phase, phase_after

GEMMA_4 = LoopGuard(shortest=1, longest=20, count=4)
"""A family that is known to fall into loops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    thinking: Thinking | None = None
    constraint: Constraint | None = None
    is_open: bool = False
    """The prompt ends inside a think block."""


def check_form(request: GenerationRequest) -> None:
    """Raises BadField for a form that cannot be enforced."""
    if request.output is not None:
        check_triggers(request.output.triggers)
        compiled(request.output)


def check_budget(request: GenerationRequest, window: int) -> None:
    """What the fields alone could not tell: no answer is longer than a slot. Raises BadRequest in
    the words of the contract (http-openai, 7); the server's own budget is not compared."""
    asked = request.thinking_budget
    if asked is None or not 0 < window < asked:
        return
    raise BadRequest(
        f"thinking_budget_tokens ({asked}) must be <= max_tokens "
        f"({min(request.max_tokens, window)})",
        param="thinking_budget_tokens",
    )


def watch_over(
    request: GenerationRequest, model: ChatModel, prompt: Prompt, kwargs: Mapping[str, Any]
) -> Watch:
    """Raises BadField for a form that cannot be enforced."""
    constraint = _constraint(request, model)
    if model.marks is None:
        return Watch(constraint=constraint)
    phase = phase_after(prompt.text, prompt.begun, model.marks)
    # Thoughts are told apart in conversations alone: elsewhere the whole text has the form.
    is_chat = isinstance(request.prompt, ChatPrompt)
    waits = constraint is not None and is_chat and _may_think(phase, kwargs)
    is_watched = waits or thinking_budget(request) >= 0 or request.is_controllable
    return Watch(
        thinking=_thinking(request, model, model.marks, phase) if is_watched else None,
        constraint=replace(constraint, after_thinking=True) if constraint and waits else constraint,
        is_open=phase is Phase.OPEN,
    )


def thinking_budget(request: GenerationRequest) -> int:
    """Tokens; -1: no cap, by which a request lifts that of the settings."""
    asked = request.thinking_budget
    return request.settings.reasoning_budget if asked is None else asked


def loop_guard(request: GenerationRequest, family: str) -> LoopGuard | None:
    """Of the request, of the settings, of the family. A guard that is off is a decision too."""
    found = request.loop if request.loop is not None else request.settings.loop
    if found is None and family.startswith("gemma4"):
        found = GEMMA_4
    return found if found is not None and found.is_on else None


def _may_think(phase: Phase, kwargs: Mapping[str, Any]) -> bool:
    """A template that opens the block thinks, whatever it was told."""
    is_off = kwargs.get("enable_thinking") is False
    return phase is Phase.OPEN or (phase is Phase.PENDING and not is_off)


def _constraint(request: GenerationRequest, model: ChatModel) -> Constraint | None:
    """As if nobody thought."""
    output = request.output
    if output is None:
        grammar = model.call_grammar(request.chat)
        return None if grammar is None else Constraint(grammar=grammar)
    triggers = looked_for(output.triggers, model.text, request.preserved)
    return Constraint(grammar=compiled(output), triggers=triggers)


def _thinking(request: GenerationRequest, model: ChatModel, marks: Marks, phase: Phase) -> Thinking:
    return Thinking(
        open_ids=marks.open_ids,
        close_ids=marks.close_ids,
        message_ids=tuple(model.text.encode(model.options.budget_message)),
        budget=thinking_budget(request),
        is_open=phase is Phase.OPEN,
        may_be_ended=request.is_controllable,
    )
