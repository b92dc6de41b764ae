"""One request, as the tick sees it: what its choices share, counted together."""

from dataclasses import dataclass

from mlxcel.core.cache import CacheReport
from mlxcel.core.events import Drafted, FinishReason, Timings, Usage
from mlxcel.engine.draft.diagnosis import Tally
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
    fetched: int = 0
    """Prompt tokens whose KV was brought from disk for it."""
    cache: CacheReport | None = None
    """What of its prompt was found when it was first read; None before, and without a cache."""
    drafted: Drafted | None = None
    """Over all choices; None before the first round."""
    tally: Tally | None = None
    """What is to be told of its proposals; None: nothing."""

    @property
    def id(self) -> str:
        return self.submit.id

    def began(self) -> RowStarted:
        """Once the first token is there."""
        return RowStarted(
            self.id,
            queued_ms=(self.first_prefill_s - self.queued_s) * 1e3,
            prompt_ms=(self.first_token_s - self.first_prefill_s) * 1e3,
            cache=self.cache,
        )

    def finished(self, now_s: float) -> RowFinished:
        """The closing event."""
        began = self.first_prefill_s or now_s
        first = self.first_token_s or now_s
        return RowFinished(
            self.id,
            self._usage(),
            Timings(
                queued_ms=(began - self.queued_s) * 1e3,
                prompt_ms=(first - began) * 1e3,
                decode_ms=(now_s - first) * 1e3,
                cache=self.cache,
                drafted=self.drafted,
            ),
        )

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=len(self.prompt),
            completion_tokens=self.produced,
            cached_tokens=cached_tokens(self.cache),
        )

    def reason_at_limit(self) -> FinishReason:
        return FinishReason.CONTEXT if self.is_bound_by_window else FinishReason.LENGTH


def request_from(
    submit: Submit, *, window: int, lora: tuple[float, ...], now_s: float, shifts: bool = False
) -> Request:
    """`window` is the tokens a slot holds; 0: unbounded. A choice ends once prompt and answer
    leave no place but one in it (engine contract, scheduler 8: finish checks); `shifts`: it
    forgets and goes on."""
    prompt = unpack_tokens(submit.tokens)
    room = submit.max_tokens
    if window and not shifts:
        room = max(1, window - len(prompt) - 1)
    return Request(
        submit=submit,
        prompt=prompt,
        limit=min(submit.max_tokens, room),
        is_bound_by_window=room < submit.max_tokens,
        queued_s=now_s,
        lora=lora,
        open_choices=submit.choices,
    )


def cached_tokens(report: CacheReport | None) -> int | None:
    """None: there is no prompt cache."""
    return None if report is None else report.reused
