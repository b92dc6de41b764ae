"""What crosses the border between the front and a worker: token ids and numbers, never text.

One msgpack message each way. To the worker: a single message. To the front: one `Frame` per
tick with the events of all rows, or one of the lifecycle messages.
"""

import struct
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from mlxcel.core.cache import CacheReport, CacheTag
from mlxcel.core.errors import ErrorInfo
from mlxcel.core.events import FinishReason, Timings, Usage
from mlxcel.core.request import Lane
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.status import ModelInfo, WorkerStats
from mlxcel.core.steering import Constraint, LoopGuard, Thinking


def pack_tokens(ids: Sequence[int]) -> bytes:
    """int32, little endian."""
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack_tokens(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)


def pack_bias(bias: Sequence[tuple[int, float]]) -> bytes:
    """int32 and float32 pairs, little endian: `SamplingParams.wide_bias`."""
    return b"".join(struct.pack("<if", token, value) for token, value in bias)


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Generate for one prompt. `tokens` are packed by `pack_tokens`."""

    id: str
    tokens: bytes
    sampling: SamplingParams
    max_tokens: int
    eos_ids: tuple[int, ...]
    """They end an answer, unless `ignore_eos`."""
    choices: int = 1
    lane: Lane = Lane.NORMAL
    top_logprobs: int | None = None
    """How many of the likeliest tokens are told beside each token said; None: no scores."""
    scores_prompt: bool = False
    """The tokens of the prompt are scored as well, with as many likeliest ones: RowPrompt. The
    prompt is read cold, and without choices to draw (`max_tokens` 0) it is still read."""
    is_post_sampling: bool = False
    """Scores are those of the distribution the token was drawn from."""
    tells_progress: bool = False
    """RowProgress after each chunk of the prompt."""
    ignore_eos: bool = False
    loop: LoopGuard | None = None
    thinking: Thinking | None = None
    """Where the think block must be watched: a budget or a constraint that begins after it."""
    constraint: Constraint | None = None
    lora: tuple[tuple[int, float], ...] | None = None
    """Adapter ids and scales of this request, the others 0; None: those in force."""
    cache: CacheTag | None = None
    """None: the prompt is read cold, and nothing of it is kept."""
    keep: int | None = None
    """Prompt tokens that a full window never forgets, -1: all; None: what the worker's options
    say."""
    discard: int = 0
    """Tokens a full window forgets at once; 0: half of those it may."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Forget a request, wherever it is. Unknown ids are ignored: it may just have finished."""

    id: str
    choice: int | None = None
    """Only this choice of it; the others go on."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Drop everything and end."""


class SetLora(msgspec.Struct, frozen=True, tag=True):
    """The scales of the adapters from now on, by adapter id; unknown ids are ignored, those not
    named become 0. Requests taken before keep the scales they were taken with."""

    scales: tuple[tuple[int, float], ...]


class Question(StrEnum):
    """What a worker can be asked between two steps. Options and answers are plain JSON values."""

    CACHE_STATS = "cache_stats"
    CACHE_RESET = "cache_reset"
    CONVERSATION_SAVE = "conversation_save"
    CONVERSATION_LOAD = "conversation_load"


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Each is answered by one Reply, in a later frame."""

    id: str
    question: Question
    options: dict[str, Any] = {}


class Warm(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Read a prompt into the cache while nothing else is to be done; nobody waits for it."""

    tokens: bytes
    tag: CacheTag


class EndThinking(msgspec.Struct, frozen=True, tag=True):
    """The think blocks of a request are closed: the next token of thinking is the first of the
    marker that ends it. Without effect where nobody thinks, and where `Thinking.may_be_ended` is
    not set."""

    id: str


ToWorker = Submit | Cancel | EndThinking | SetLora | Ask | Warm | Stop


class RowAccepted(msgspec.Struct, frozen=True, tag=True):
    """The request is in the queue; nothing can refuse it any more."""

    id: str
    cache: CacheReport | None = None
    """What is there for it now; what is used in the end comes with RowStarted."""


class RowProgress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A prompt has been read so far: the first when prefill begins, one after each chunk."""

    id: str
    total: int
    cached: int
    processed: int
    """Tokens read and tokens cached."""
    took_ms: float


class RowStarted(msgspec.Struct, frozen=True, tag=True):
    """The first token of the first choice is there: comes right before it, with where the time
    so far went."""

    id: str
    queued_ms: float
    prompt_ms: float
    cache: CacheReport | None = None


class RowPrompt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How likely the tokens of a prompt were, from the second on. Before RowStarted; in several
    parts, in order, when the prompt is long."""

    id: str
    scores: list["TokenScores"]


class TokenScores(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities at one place of an answer: of the token said, and of the likeliest
    tokens, best first."""

    said: float
    top: list[tuple[int, float]]


class RowTokens(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """New output tokens of one choice, in order. EOS is never among them."""

    id: str
    ids: list[int]
    choice: int = 0
    scores: list[TokenScores] | None = None
    """One for each of `ids`, where the request asked for them."""
    is_forced: bool = False
    """The end of a think block that the budget forced: no stop string matches in it."""


class RowPaused(msgspec.Struct, frozen=True, tag=True):
    """No row of a request that has begun decodes now: they make room for others, or wait for a
    place. Tokens come again later."""

    id: str


class RowEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One choice has all its tokens. RowFinished follows once all choices have."""

    id: str
    reason: FinishReason
    choice: int = 0


class RowFinished(msgspec.Struct, frozen=True, tag=True):
    """The request is over: counts and times over all choices."""

    id: str
    usage: Usage
    timings: Timings


class RowFailed(msgspec.Struct, frozen=True, tag=True):
    id: str
    error: ErrorInfo


RowEvent = (
    RowAccepted
    | RowProgress
    | RowPrompt
    | RowStarted
    | RowTokens
    | RowPaused
    | RowEnded
    | RowFinished
    | RowFailed
)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """To an Ask: a value, or why there is none."""

    id: str
    value: dict[str, Any] = {}
    error: ErrorInfo | None = None


class Frame(msgspec.Struct, frozen=True, tag=True):
    """All that one tick has to say."""

    events: list[RowEvent]
    stats: WorkerStats
    replies: list[Reply] = []


class Loading(msgspec.Struct, frozen=True, tag=True):
    """A step of the start-up, for the log and /health; `fraction` is 0..1 where it is known."""

    step: str
    fraction: float | None = None


class Ready(msgspec.Struct, frozen=True, tag=True):
    model: ModelInfo


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot start or go on; it ends after this message."""

    error: ErrorInfo


FromWorker = Frame | Loading | Ready | Fatal


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's share of the plan: the first line on its standard input, as JSON.

    The rest of standard input stays silent; its end means that the front is gone.
    """

    name: str
    factory: str
    options: dict[str, object]
    parts: list["PartSpec"]
    """In the order they are built."""
    data_address: str = ""
    beat_address: str = ""
    beat_interval_s: float = 1.0


class PartSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One part a worker builds for itself: `factory(options, progress, **ports)`."""

    name: str
    factory: str
    options: dict[str, object]
    needs: list[str]
    provides: list[str]
