"""What one layer asks of another, as small protocols."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mlxcel.core.conversations import Conversations
from mlxcel.core.events import Event
from mlxcel.core.request import GenerationRequest
from mlxcel.core.status import WorkerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The names and plain facts of the model a generator serves."""

    id: str
    """The id answers carry: the first alias, else the folder name."""
    names: tuple[str, ...]
    """Every name a request may use: id, aliases, folder name, path."""
    aliases: tuple[str, ...]
    family: str
    vocab_size: int
    hidden_size: int
    train_window: int
    context_window: int
    """Tokens per slot as configured; 0: the model's own."""
    tags: tuple[str, ...] = ()
    lacks_fim: tuple[str, ...] = ()
    """The markers of fill-in-the-middle that its tokenizer lacks, by what they stand before:
    prefix, suffix, middle. Empty: it can infill."""
    fim_words: tuple[str, ...] = ()
    """The markers it has: no text of a client may hold one where code is filled in."""


class CacheControl(Protocol):
    """The prompt cache from outside. Everything raises Unavailable while the model is not there,
    WorkerDied and AnswerTimeout."""

    async def stats(self) -> dict[str, Any]:
        """Every key in every state: configuration, gauges, counters."""
        ...

    async def reset(self) -> dict[str, Any]:
        """Forgets all that is kept; returns `cleared`, `freed_bytes` and `freed_entries`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFile:
    """What was written to a file, or read from it."""

    tokens: int
    size_bytes: int
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """One slot. What is said of a task is of the last one it served; None before the first."""

    id: int
    is_busy: bool
    window: int
    """Tokens it holds; 0: unbounded."""
    task: int | None = None
    """Counts the requests that got a slot."""
    request: GenerationRequest | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    decoded: int = 0
    has_next_token: bool = False
    has_new_line: bool = False
    prompt: str = ""
    generated: str = ""
    """Both as text, where it is asked for."""


class Slots(Protocol):
    """The tokens of the slots, kept in files. All three actions raise Unavailable while the slot
    is at work; those with a name raise BadRequest for one that is no plain name of a file."""

    def check_kept(self) -> None:
        """Raises NotImplementedHere where there is no folder for the files."""
        ...

    @property
    def count(self) -> int:
        """How many there are. Raises Unavailable before the model was there once."""
        ...

    async def save(self, slot: int, name: str) -> SlotFile: ...

    async def restore(self, slot: int, name: str) -> SlotFile:
        """Raises BadRequest for a file that is missing or does not fit the model."""
        ...

    def erase(self, slot: int) -> int:
        """Returns how many tokens it held."""
        ...

    def states(self, *, with_text: bool = False) -> Sequence[SlotState]:
        """All of them, in order; needs no folder. Empty before the model was there once.
        `with_text`: with what was asked and answered."""
        ...


class TextTools(Protocol):
    """The tokenizer of the served model. Works without its worker."""

    def encode(self, text: str, *, adds_special: bool, parses_special: bool) -> list[int]:
        """`adds_special`: with what the tokenizer puts around a text. `parses_special`: words of
        special tokens are those tokens; else they are plain text."""
        ...

    def piece(self, token: int) -> bytes:
        """What a token stands for; it need not be whole UTF-8. A special token for its own name.
        Raises BadRequest for an id that is not in the vocabulary."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """With special tokens; U+FFFD for broken bytes. Raises as `piece`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter and its scale for requests that bring none of their own."""

    id: int
    path: str
    scale: float


class Adapters(Protocol):
    """The LoRA adapters of the served model."""

    @property
    def is_fused(self) -> bool: ...

    def items(self) -> Sequence[Adapter]: ...

    def set(self, scales: Mapping[int, float]) -> None:
        """Those not named become 0, unknown ids are ignored. Requests that run keep theirs. Raises
        NotSupported where they are merged and the scales would change."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAbilities:
    """What the chat template of the served model can do, found by rendering it."""

    string_content: bool = False
    typed_content: bool = False
    tools: bool = False
    tool_calls: bool = False
    parallel_tool_calls: bool = False
    system_role: bool = False
    preserve_reasoning: bool = False
    reasoning_effort: bool = False
    object_arguments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is fixed about the served model beside its names."""

    path: str
    """"" for one without a folder."""
    chat_template: str
    abilities: TemplateAbilities
    bos_token: str
    eos_token: str
    has_tool_parser: bool
    weights_type: str = ""
    """As llama.cpp writes a file type: `MLX Q4`, `MLX BF16`; "" for one without a folder."""


class Generator(Protocol):
    """The chat model as the HTTP side sees it."""

    @property
    def model(self) -> ServedModel: ...

    @property
    def cache(self) -> CacheControl: ...

    @property
    def slots(self) -> Slots: ...

    @property
    def conversations(self) -> Conversations | None:
        """None: requests belong to no conversation."""
        ...

    @property
    def text(self) -> TextTools: ...

    @property
    def adapters(self) -> Adapters: ...

    @property
    def facts(self) -> ModelFacts: ...

    @property
    def window(self) -> int:
        """Tokens a slot holds; 0: unbounded, or not known yet."""
        ...

    def status(self) -> WorkerStatus: ...

    async def count(self, request: GenerationRequest) -> int:
        """Tokens of its prompt, counted as if it were to be answered. Raises what refuses it on
        account of its fields and its prompt; needs no slot and no worker."""
        ...

    async def render(self, request: GenerationRequest) -> str:
        """The text the model would read. As `count`."""
        ...

    def end_thinking(self, request_id: str) -> None:
        """Of a request that runs and is controllable: the next token of thinking is the first of
        the marker that ends it. A no-op for any other."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Events of one request.

        Everything that can refuse the request raises an `MlxcelError` before the first event.
        The first event is `Accepted`. Closing the generator early cancels the request.
        """
        ...
