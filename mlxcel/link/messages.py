"""What crosses the border between the front and a worker: token ids and numbers, never text.

One msgpack message each way. To the worker: a single message. To the front: one `Frame` per
tick with the events of all rows, or one of the lifecycle messages.
"""

import struct
from collections.abc import Sequence

import msgspec

from mlxcel.core.errors import ErrorInfo
from mlxcel.core.events import FinishReason, Timings, Usage
from mlxcel.core.request import SamplingParams
from mlxcel.core.status import ModelInfo, WorkerStats


def pack_tokens(ids: Sequence[int]) -> bytes:
    """int32, little endian."""
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack_tokens(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Generate for one prompt. `tokens` are packed by `pack_tokens`."""

    id: str
    tokens: bytes
    sampling: SamplingParams
    max_tokens: int
    eos_ids: tuple[int, ...]


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Forget a request, wherever it is. Unknown ids are ignored: it may just have finished."""

    id: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Drop everything and end."""


ToWorker = Submit | Cancel | Stop


class RowAccepted(msgspec.Struct, frozen=True, tag=True):
    """The request is in the queue; nothing can refuse it any more."""

    id: str


class RowStarted(msgspec.Struct, frozen=True, tag=True):
    """The first token is there: comes right before it, with where the time so far went."""

    id: str
    queued_ms: float
    prompt_ms: float


class RowTokens(msgspec.Struct, frozen=True, tag=True):
    """New output tokens of one row, in order. EOS is never among them."""

    id: str
    ids: list[int]


class RowFinished(msgspec.Struct, frozen=True, tag=True):
    id: str
    reason: FinishReason
    usage: Usage
    timings: Timings


class RowFailed(msgspec.Struct, frozen=True, tag=True):
    id: str
    error: ErrorInfo


RowEvent = RowAccepted | RowStarted | RowTokens | RowFinished | RowFailed


class Frame(msgspec.Struct, frozen=True, tag=True):
    """All that one tick has to say."""

    events: list[RowEvent]
    stats: WorkerStats


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
