"""An answer in one piece, for requests that are not streamed."""

from dataclasses import dataclass

from mlxcel.core.events import FinishReason, PromptToken, Timings, TokenLogprobs, Usage
from mlxcel.core.request import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    reason: FinishReason
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    matched_stop: str | None = None
    reasoning_only: bool = False
    ids: tuple[int, ...] = ()
    """The tokens of the answer, where the request asks for them."""
    prompt: tuple[PromptToken, ...] = ()
    """The tokens of its prompt, where the request asks for their scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    choices: tuple[Choice, ...]
    usage: Usage
    timings: Timings
    slot: int = -1
    """The one that served it; -1: none."""
