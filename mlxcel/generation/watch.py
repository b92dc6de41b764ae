"""What the worker has to watch over while a row decodes: think block, form of the answer, loops."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.core.request import GenerationRequest
from mlxcel.core.steering import Constraint, LoopGuard, Thinking
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.structured import compiled
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
    output = request.output
    grammar = model.call_grammar(request.prompt) if output is None else compiled(output)
    if model.marks is None:
        return Watch(constraint=None if grammar is None else Constraint(grammar=grammar))
    phase = phase_after(prompt.text, prompt.begun, model.marks)
    waits = grammar is not None and _may_think(phase, kwargs)
    budget = thinking_budget(request)
    return Watch(
        thinking=_thinking(model, model.marks, budget, phase) if waits or budget >= 0 else None,
        constraint=None if grammar is None else Constraint(grammar=grammar, after_thinking=waits),
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


def _thinking(model: ChatModel, marks: Marks, budget: int, phase: Phase) -> Thinking:
    return Thinking(
        open_ids=marks.open_ids,
        close_ids=marks.close_ids,
        message_ids=tuple(model.text.encode(model.options.budget_message)),
        budget=budget,
        is_open=phase is Phase.OPEN,
    )
