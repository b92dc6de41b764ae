"""From a message to a prompt in the queue: what can refuse a request, in order."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from mlxcel.core.errors import KvBudgetExceeded
from mlxcel.core.steering import Constraint
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.engine.constraint.matcher import Matcher
from mlxcel.engine.lora import LoraScales
from mlxcel.engine.memory.guard import RequestGuard
from mlxcel.engine.memory.pool import KVPool
from mlxcel.engine.prompt import Prompt
from mlxcel.engine.request import Request, request_from
from mlxcel.engine.sequence import SteeringMaker, sequences_of
from mlxcel.engine.steering import Steering
from mlxcel.link.messages import Submit


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """`window` is the tokens a slot holds; 0: unbounded."""

    window: int
    guard: RequestGuard
    pool: KVPool
    lora: LoraScales
    compiler: Compiler | None
    """None for a model without a tokenizer file: it takes no constraints."""
    threads: ThreadPoolExecutor
    """Where constraints are compiled while the prompt waits and is prefilled."""

    def read(self, submit: Submit) -> Request:
        """Raises what refuses the request before anything was computed for it."""
        self.lora.check(submit.lora)
        request = request_from(
            submit,
            window=self.window,
            lora=self.lora.of(submit.lora),
            now_s=time.monotonic(),
        )
        length, choices = len(request.prompt), submit.choices
        self.guard.check(length, max(request.limit, 0) * choices)
        if not self.pool.fits_at_all(length, rows=choices):
            assert self.pool.budget is not None, "only a bound can be too small"
            raise KvBudgetExceeded(self.pool.need(length) * choices, self.pool.budget)
        return request

    def prompt(self, request: Request) -> Prompt:
        rows = sequences_of(request, self._steering_of(request.submit))
        return Prompt(request=request, tokens=request.prompt, rows=rows)

    def _steering_of(self, submit: Submit) -> SteeringMaker | None:
        constraint, thinking = submit.constraint, submit.thinking
        if constraint is None and thinking is None:
            return None
        compiled = None if constraint is None else self._compiled(constraint, submit.eos_ids)

        def make() -> Steering:
            return Steering(
                thinking,
                None if compiled is None else compiled(),
                after_thinking=constraint is not None and constraint.after_thinking,
                eos_ids=submit.eos_ids,
            )

        return make

    def _compiled(self, constraint: Constraint, eos_ids: tuple[int, ...]) -> Callable[[], Matcher]:
        """Each call gives a matcher of its own, the first one compiled on a thread by now."""
        assert self.compiler is not None, "the front sends no constraint to such a model"
        compiler = self.compiler
        first: list[Future[Matcher]] = [self.threads.submit(compiler.matcher, constraint, eos_ids)]

        def take() -> Matcher:
            return first.pop().result() if first else compiler.matcher(constraint, eos_ids)

        return take
