"""One request, as the tick sees it: what its choices share, counted together."""

from dataclasses import dataclass

from mlxcel.core.events import FinishReason, Timings, Usage
from mlxcel.link.messages import RowFinished, RowStarted, Submit, unpack_tokens


@dataclass(slots=True, eq=False)
class Request:
    """Mutable, owned by the tick. Times are of one monotonic clock."""

    submit: Submit
    prompt: tuple[int, ...]
    limit: int
    """Output tokens each choice may have: max_tokens, or the room left in the window."""
    is_bound_by_window: bool
    queued_s: float
    lora: tuple[float, ...]
    """The scale of each adapter, taken at arrival."""
    open_choices: int
    produced: int = 0
    """Output tokens read so far, over all choices."""
    first_prefill_s: float = 0.0
    first_token_s: float = 0.0

    @property
    def id(self) -> str:
        return self.submit.id

    def began(self) -> RowStarted:
        """Once the first token is there."""
        return RowStarted(
            self.id,
            queued_ms=(self.first_prefill_s - self.queued_s) * 1e3,
            prompt_ms=(self.first_token_s - self.first_prefill_s) * 1e3,
        )

    def finished(self, now_s: float) -> RowFinished:
        """The closing event."""
        began = self.first_prefill_s or now_s
        first = self.first_token_s or now_s
        return RowFinished(
            self.id,
            Usage(prompt_tokens=len(self.prompt), completion_tokens=self.produced),
            Timings(
                queued_ms=(began - self.queued_s) * 1e3,
                prompt_ms=(first - began) * 1e3,
                decode_ms=(now_s - first) * 1e3,
            ),
        )

    def reason_at_limit(self) -> FinishReason:
        return FinishReason.CONTEXT if self.is_bound_by_window else FinishReason.LENGTH


def request_from(submit: Submit, *, window: int, lora: tuple[float, ...], now_s: float) -> Request:
    """`window` is the tokens a slot holds; 0: unbounded. A choice ends once prompt and answer
    leave no place but one in it (engine contract, scheduler 8: finish checks)."""
    prompt = unpack_tokens(submit.tokens)
    room = max(1, window - len(prompt) - 1) if window else submit.max_tokens
    return Request(
        submit=submit,
        prompt=prompt,
        limit=min(submit.max_tokens, room),
        is_bound_by_window=room < submit.max_tokens,
        queued_s=now_s,
        lora=lora,
        open_choices=submit.choices,
    )
