"""One running request, as the tick sees it."""

from dataclasses import dataclass, field
from typing import Any

from mlxcel.core.events import FinishReason, Timings, Usage
from mlxcel.link.messages import RowFinished, RowStarted, Submit, unpack_tokens


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable, owned by the tick. `produced` counts the output tokens read so far, and
    `started` those whose step was dispatched (one more while a step is in flight)."""

    submit: Submit
    prompt: tuple[int, ...]
    limit: int
    """Output tokens this row may have: max_tokens, or the room left in the window."""
    is_bound_by_window: bool
    queued_s: float
    kv: list[Any] = field(default_factory=list)
    """The row's own caches while it is prefilled; the batch has them afterwards."""
    computed: int = 0
    """Prompt tokens that are in the KV."""
    produced: int = 0
    started: int = 0
    first_prefill_s: float = 0.0
    first_token_s: float = 0.0
    is_done: bool = False

    @property
    def id(self) -> str:
        return self.submit.id

    def is_end(self, token: int) -> bool:
        return token in self.submit.eos_ids

    def began(self) -> RowStarted:
        """Once the first token is there."""
        return RowStarted(
            self.id,
            queued_ms=(self.first_prefill_s - self.queued_s) * 1e3,
            prompt_ms=(self.first_token_s - self.first_prefill_s) * 1e3,
        )

    def finished(self, reason: FinishReason, now_s: float) -> RowFinished:
        """The closing event. `now_s` is the same clock as `queued_s`."""
        began = self.first_prefill_s or now_s
        first = self.first_token_s or now_s
        return RowFinished(
            self.id,
            reason,
            Usage(prompt_tokens=len(self.prompt), completion_tokens=self.produced),
            Timings(
                queued_ms=(began - self.queued_s) * 1e3,
                prompt_ms=(first - began) * 1e3,
                decode_ms=(now_s - first) * 1e3,
            ),
        )

    def reason_at_limit(self) -> FinishReason:
        return FinishReason.CONTEXT if self.is_bound_by_window else FinishReason.LENGTH


def sequence_from(submit: Submit, *, window: int, now_s: float) -> Sequence:
    """`window` is the tokens a slot holds; 0: unbounded. The row ends once prompt and answer
    leave no place but one in it (engine contract, scheduler 8: finish checks)."""
    prompt = unpack_tokens(submit.tokens)
    room = max(1, window - len(prompt) - 1) if window else submit.max_tokens
    return Sequence(
        submit=submit,
        prompt=prompt,
        limit=min(submit.max_tokens, room),
        is_bound_by_window=room < submit.max_tokens,
        queued_s=now_s,
    )
