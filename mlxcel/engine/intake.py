"""From a message to a prompt in the queue: what can refuse a request, in order."""

import time
from dataclasses import dataclass

from msgspec.structs import replace

from mlxcel.core.errors import KvBudgetExceeded
from mlxcel.engine.constraint.matcher import Matcher
from mlxcel.engine.lora import LoraScales
from mlxcel.engine.memory.guard import RequestGuard
from mlxcel.engine.memory.pool import KVPool
from mlxcel.engine.prompt import Prompt
from mlxcel.engine.request import Request, request_from
from mlxcel.engine.sequence import sequences_of
from mlxcel.engine.steering import Steering
from mlxcel.link.messages import Submit


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """`window` is the tokens a slot holds; 0: unbounded."""

    window: int
    shifts: bool
    """A row whose window is full forgets its oldest tokens and goes on."""
    slots: int
    guard: RequestGuard
    pool: KVPool
    lora: LoraScales

    def read(self, submit: Submit) -> Request:
        """Raises what refuses the request before anything was computed for it."""
        self.lora.check(submit.lora)
        if submit.scores_prompt:  # every place of it must be read; so it needs no cache
            submit = replace(submit, cache=None)
        request = request_from(
            submit,
            window=self.window,
            lora=self.lora.of(submit.lora),
            now_s=time.monotonic(),
            shifts=self.shifts,
        )
        length = len(request.prompt)
        self.guard.check(length, self._planned(request))
        if not self.pool.fits_at_all(length):
            assert self.pool.budget is not None, "only a bound can be too small"
            raise KvBudgetExceeded(self.pool.need(length), self.pool.budget)
        return request

    def _planned(self, request: Request) -> int:
        """Tokens beside the prompt that stand in memory at once. A single row takes the KV of its
        prompt over; of several, each has a copy."""
        copies = min(request.submit.choices, self.slots)
        answer = max(request.limit, 0)
        if self.window:
            answer = min(answer, self.window)
        return answer if copies == 1 else copies * (len(request.prompt) + answer)


def prompt_of(request: Request, matchers: list[Matcher]) -> Prompt:
    """`matchers`: one for each choice, or none without a constraint."""
    submit = request.submit
    constraint, thinking = submit.constraint, submit.thinking
    steerings: list[Steering | None] = [None] * submit.choices
    if constraint is not None or thinking is not None:
        steerings = [
            Steering(
                thinking,
                matchers[choice] if matchers else None,
                after_thinking=constraint is not None and constraint.after_thinking,
                eos_ids=submit.eos_ids,
            )
            for choice in range(submit.choices)
        ]
    return Prompt(
        request=request,
        tokens=request.prompt,
        rows=sequences_of(request, steerings),
        is_scored=submit.scores_prompt,
        tells_progress=submit.tells_progress,
    )
