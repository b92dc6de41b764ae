"""What happened to a request: the events a dialect turns into wire bytes.

Order: Accepted PromptProgress* PromptScored* Started (delta | ChoiceFinished)*, and at the end
Finished or Failed. Each choice ends once, after all of its deltas; Finished comes after the last of
them. Failed may come at any point, once. Where nothing is generated there is no Started. A prompt
that is told again is a delta: it may come before Started.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from mlxcel.core.cache import CacheReport
from mlxcel.core.errors import ErrorInfo


class FinishReason(StrEnum):
    """Why a row ended. A dialect maps these to its own words."""

    EOS = "eos"
    STOP = "stop"
    """A stop string matched."""
    LENGTH = "length"
    """`max_tokens` reached."""
    CONTEXT = "context"
    """The context window is full."""
    STRUCTURE = "structure"
    """What the answer must look like is complete; nothing may follow."""
    LOOP = "loop"
    """The answer repeats itself: the loop guard."""
    INDENT = "indent"
    """A line is indented less than was asked for."""
    TIME = "time"
    """The time the answer may take is over."""
    TOOL_CALLS = "tool_calls"
    """The answer ends with calls of tools. Never from a worker: calls are found in the text."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one request; the prompt once, the answers of all choices."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    """Of the prompt, those that were not read again; None: there is no prompt cache."""
    reasoning_tokens: int | None = None
    """Of the answers, those spent inside of think blocks, counted by the front; None: thinking is
    not told apart."""


class Drafted(msgspec.Struct, frozen=True, kw_only=True):
    """What drafting was good for: tokens proposed in so many verify rounds, and those that came
    true."""

    kind: str
    rounds: int
    proposed: int
    accepted: int


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one request went, in milliseconds."""

    queued_ms: float
    """From arrival in the worker to the first prefill."""
    prompt_ms: float
    """From the first prefill to the first token."""
    decode_ms: float
    """From the first token to the last."""
    total_ms: float = 0.0
    """Wall time from arrival in the front to the last token, filled in by the front."""
    cache: CacheReport | None = None
    """None: this engine knows no prompt cache."""
    drafted: Drafted | None = None
    """None: there was no round."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Nothing can refuse the request any more: headers may be sent."""

    prompt_tokens: int
    cache: CacheReport | None = None
    """What was found on arrival; `Timings.cache` says what was used in the end."""


@dataclass(frozen=True, slots=True)
class Likely:
    """A token and how likely it was: the log of its probability, before truncation and
    temperature. `data` is what the token stands for; it need not be whole UTF-8."""

    token: str
    logprob: float
    data: bytes
    id: int = -1


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One token said, and the likeliest ones at its place, best first."""

    said: Likely
    top: tuple[Likely, ...]


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How far the prompt has been read, for requests that ask to be told."""

    total: int
    cached: int
    """Tokens that need not be read."""
    processed: int
    """Those read and those cached."""
    took_ms: float
    """Since the first prefill."""


@dataclass(frozen=True, slots=True)
class PromptToken:
    """A token of the prompt, and how likely it was there; None, and no `top`, for the first, before
    which nothing stands."""

    token: str
    logprob: float | None
    data: bytes
    id: int
    top: tuple[Likely, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptScored:
    """For requests that ask for it: all tokens of the prompt, once for each choice."""

    tokens: tuple[PromptToken, ...]
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The first token is there: where the time so far went."""

    queued_ms: float
    prompt_ms: float
    cached_tokens: int | None = None
    """As in `Usage`."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More answer text: never a broken UTF-8 sequence, never part of a stop match or of the
    markup of a tool call. Empty only when it carries log-probabilities or ids: those of tokens
    whose text is held back or is no answer text."""

    text: str
    choice: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    ids: tuple[int, ...] = ()
    """The tokens since the delta before, where the request asks for them."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks, without the markers around it. Never empty."""

    text: str
    choice: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """One whole call. `index` counts the calls of its choice; `arguments` is JSON text."""

    index: int
    call_id: str
    name: str
    arguments: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ChoiceFinished:
    """One answer has ended. `reasoning_only`: all that was said is thinking."""

    reason: FinishReason
    choice: int = 0
    matched_stop: str | None = None
    reasoning_only: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """All choices have."""

    usage: Usage
    timings: Timings
    slot: int = -1
    """The one that served it; -1: none."""


@dataclass(frozen=True, slots=True)
class Failed:
    error: ErrorInfo


Event = (
    Accepted
    | PromptProgress
    | PromptScored
    | Started
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | ChoiceFinished
    | Finished
    | Failed
)
