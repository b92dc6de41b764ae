"""One choice of a request: a row of the batch, or one that waits to become one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from mlxcel.core.errors import MlxcelError
from mlxcel.core.request import Lane
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.base import RowDraft
from mlxcel.engine.request import Request
from mlxcel.engine.steering import Steering

SEED_SPAN = 2**32
NOTHING_ALLOWED = np.zeros(1, dtype=np.uint32)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """Mutable, owned by the tick. `started` counts the output tokens whose step was dispatched:
    one more than `output` holds while a step is in flight."""

    request: Request
    choice: int
    sampling: SamplingParams
    output: list[int] = field(default_factory=list)
    started: int = 0
    steering: Steering | None = None
    key: str = field(init=False)
    """Names this row alone."""
    sampler_state: tuple[float, float] | None = None
    """Of a preempted row: what its sampler had learned."""
    trouble: MlxcelError | None = None
    """Why nothing can be drawn for it any more."""
    draft: RowDraft | None = None
    """Who proposes what it may say next; None: nobody."""
    is_done: bool = False
    end_token: int | None = None
    """What ended the answer, though it is no part of it; a step that ran ahead has read it."""

    base: tuple[int, ...] = field(init=False)
    """What it answers: the prompt, or what is left of prompt and answer since it has forgotten
    some of them."""
    base_output: int = 0
    """Output tokens that are part of `base`."""

    def __post_init__(self) -> None:
        self.key = key_of(self.request.id, self.choice)
        self.base = self.request.prompt

    @property
    def lane(self) -> Lane:
        return self.request.submit.lane

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and answer so far, but for what was forgotten."""
        return (*self.base, *self.output[self.base_output :])

    @property
    def last_token(self) -> int:
        return self.output[-1] if self.output else self.base[-1]

    @property
    def kv_length(self) -> int:
        """Tokens in the KV once everything dispatched has run."""
        return len(self.base) - 1 + self.started - self.base_output

    @property
    def has_forgotten(self) -> bool:
        return self.base is not self.request.prompt

    def forget_all_but(self, tokens: tuple[int, ...]) -> None:
        """These are its prompt from now on."""
        self.base, self.base_output = tokens, len(self.output)

    @property
    def read_tokens(self) -> tuple[int, ...]:
        """The tokens in its KV, in order; those that are not known yet are left out."""
        known = self.tokens if self.end_token is None else (*self.tokens, self.end_token)
        return known[: self.kv_length]

    def allowed(self) -> np.ndarray | None:
        """The tokens that may follow, as bits; None: all. No bit is set for a row in trouble."""
        if self.steering is None:
            return None
        try:
            return self.steering.allowed()
        except MlxcelError as why:
            self.trouble = why
            return NOTHING_ALLOWED

    @property
    def needs_tokens(self) -> bool:
        """The next draw depends on tokens that were said: no step may run ahead."""
        return self.steering is not None and self.steering.needs_tokens

    def end_thinking(self) -> None:
        """The token in flight, where there is one, is still thought."""
        if self.steering is not None:
            self.steering.end_thinking(is_flying=self.started > len(self.output))

    def is_end(self, token: int) -> bool:
        submit = self.request.submit
        return not submit.ignore_eos and token in submit.eos_ids


def sequences_of(request: Request, steerings: Iterable[Steering | None]) -> list[Sequence]:
    """One for each choice. Choice c draws what a request alone with the seed + c would draw."""
    sampling = request.submit.sampling
    return [
        Sequence(
            request=request,
            choice=choice,
            sampling=replace(sampling, seed=(sampling.seed + choice) % SEED_SPAN),
            steering=steering,
        )
        for choice, steering in enumerate(steerings)
    ]


def key_of(request_id: str, choice: int) -> str:
    """Names one row among all."""
    return f"{request_id}#{choice}"
