"""What a client wants, free of any dialect: prompts, sampling, one request type."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from mlxcel.core.cache import CacheUse
from mlxcel.core.output import OutputFormat
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.settings import Settings
from mlxcel.core.steering import LoopGuard


class Lane(IntEnum):
    """The queue a request waits in; a lower number goes first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function the model may call. `parameters` is its JSON Schema; `sent` is the whole
    entry as the client wrote it, for the chat template."""

    name: str
    parameters: Mapping[str, Any]
    sent: Mapping[str, Any]


class ToolMode(StrEnum):
    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    mode: ToolMode = ToolMode.AUTO
    name: str = ""
    """Of the one function, for NAMED."""

    @property
    def is_forced(self) -> bool:
        return self.mode in (ToolMode.REQUIRED, ToolMode.NAMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call an earlier assistant turn made; `arguments` is JSON text, as on the wire."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation. Text parts are already joined into `text`."""

    role: str
    text: str = ""
    name: str | None = None
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """Messages for the chat template; `kwargs` go to the template over the server's own."""

    messages: tuple[Message, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    echo: bool = False
    """An assistant turn at the end, which the answer continues, is told again before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPrompt:
    """A text the model goes on with as it stands: no template, no roles; thoughts and calls are
    not looked for in the answer."""

    text: str = ""
    tokens: tuple[int, ...] | None = None
    """Ids in place of a text: what the tokenizer puts around a text (BOS) is not added to them."""
    echo: bool = False
    """The prompt is told again before the answer."""
    param: str = "prompt"
    """The field to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfillPrompt:
    """Code with a gap: what stands before it and behind it, and other files of the project as
    (name, text). `text` goes on with the prefix."""

    prefix: str
    suffix: str
    text: str = ""
    extra: tuple[tuple[str, str], ...] = ()


Prompt = ChatPrompt | TextPrompt | InfillPrompt
NO_CHAT = ChatPrompt(messages=())


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request for text. `settings` is the snapshot taken on arrival."""

    id: str
    prompt: Prompt
    settings: Settings
    sampling: SamplingParams
    max_tokens: int
    """Upper bound of output tokens; a full context window ends the answer earlier."""
    stop: tuple[str, ...] = ()
    dry_breakers: tuple[str, ...] = ()
    """Texts no repetition reaches across, for `sampling.dry`; those of the request are ids."""
    bias_texts: tuple[tuple[str, float], ...] = ()
    """As `sampling.bias`, by text: each token of such a text is biased."""
    choices: int = 1
    """Answers to one prompt, from one prefill. Choice c draws with seed + c."""
    lane: Lane = Lane.NORMAL
    top_logprobs: int | None = None
    """Log-probabilities of each token said and of so many likeliest ones; None: of none."""
    scores_prompt: bool = False
    """The same for the tokens of the prompt. It is read cold."""
    is_post_sampling: bool = False
    """Log-probabilities are those the token was drawn with: after penalties, truncation and
    temperature."""
    tells_ids: bool = False
    """Deltas name the tokens they are made of."""
    tells_progress: bool = False
    """How far the prompt has been read is told, chunk by chunk."""
    ignore_eos: bool = False
    loop: LoopGuard | None = None
    """None: what the settings say, else what the model's family needs."""
    thinking_budget: int | None = None
    """Tokens of thinking; -1: no cap; None: what the settings say."""
    remembers_thoughts: bool = True
    """Thoughts of earlier answers are put back, and those of this one kept for the next."""
    is_controllable: bool = False
    """Its thinking may be ended from outside while it runs."""
    indent: int = 0
    """The answer ends at the first line that is indented by fewer spaces; 0: off."""
    time_limit_ms: int = 0
    """Counted from the first token; the answer ends at the next line end after it; 0: off."""
    keep: int | None = None
    """Prompt tokens that a full window never forgets, -1: all; None: what the server says."""
    discard: int = 0
    """Tokens a full window forgets at once; 0: half of those it may."""
    preserved: tuple[str, ...] = ()
    """Words of special tokens that are shown in the answer; those that are no single token are
    left out."""
    output: OutputFormat | None = None
    lora: tuple[tuple[int, float], ...] | None = None
    """Adapter ids and their scales for this request, the others 0; None: those in force."""
    cache: CacheUse = field(default_factory=CacheUse)
    received_s: float
    """`time.monotonic()` at arrival."""

    @property
    def chat(self) -> ChatPrompt:
        """The conversation, with its tools; an empty one where the prompt is none."""
        return self.prompt if isinstance(self.prompt, ChatPrompt) else NO_CHAT
