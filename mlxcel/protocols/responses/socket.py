"""The messages of a WebSocket on /v1/responses: the body of a create with a few words around it,
and errors. All else that is told are the events of a stream, as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.errors import ErrorInfo, MlxcelError
from mlxcel.protocols.fields import Reader, shown
from mlxcel.protocols.responses.errors import (
    CONNECTION_LIMIT,
    STREAM_LIMIT,
    error_body,
)

CREATE = "response.create"
STREAM_ID_CHARS = 64
STREAMS = 32
"""Streams with a name that one connection may have."""
UNANSWERED = 16
"""Responses that one connection may wait for, those that run included."""
ENVELOPE = frozenset({"type", "stream_id", "generate", "stream"})


class ConnectionTooOld(MlxcelError):
    code = CONNECTION_LIMIT
    status = 400

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"this connection is {seconds:g} s old, and none may be older "
            "(limits.websocket_secs); open another one"
        )


class TooManyStreams(MlxcelError):
    code = STREAM_LIMIT
    status = 400

    def __init__(self) -> None:
        super().__init__(
            f"stream_id: this connection has {STREAMS} streams already; use one of them, or open "
            "another connection",
            param="stream_id",
        )


class TooManyUnanswered(MlxcelError):
    code = STREAM_LIMIT
    status = 400

    def __init__(self) -> None:
        super().__init__(
            f"{UNANSWERED} responses run or wait on this connection; wait for one to end"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """What a client asks for in one message."""

    body: Mapping[str, Any]
    """As `POST /v1/responses` takes it."""
    stream_id: str | None
    """Responses of one stream follow each other; those of several run side by side."""
    is_warmup: bool
    """The prompt is to be read ahead, and nothing said."""


def read_stream_id(message: Mapping[str, Any]) -> str | None:
    """Raises BadField."""
    fields = Reader(message)
    name = fields.string("stream_id")
    if name is not None and not 0 < len(name) <= STREAM_ID_CHARS:
        raise fields.refuse("stream_id", f"wants 1 to {STREAM_ID_CHARS} characters")
    return name


def read_create(message: Mapping[str, Any]) -> Create:
    """Raises BadField."""
    fields = Reader(message)
    kind = message.get("type")
    if kind != CREATE:
        rule = f'wants "{CREATE}", the one kind of message that is answered; got {shown(kind)}'
        raise fields.refuse("type", rule)
    is_warmup = fields.boolean("generate") is False
    # A response on a WebSocket is always told as a stream.
    body = {name: value for name, value in message.items() if name not in ENVELOPE}
    if is_warmup and body.get("input") is None:
        body["input"] = []
    return Create(body=body, stream_id=read_stream_id(message), is_warmup=is_warmup)


def error_message(error: ErrorInfo, stream_id: str | None) -> dict[str, Any]:
    """For what failed before its first event. The connection goes on."""
    message = {"type": "error", "status": error.status, **error_body(error)}
    return message | on_stream(stream_id)


def on_stream(stream_id: str | None) -> dict[str, str]:
    """What every message says that belongs to a stream with a name."""
    return {} if stream_id is None else {"stream_id": stream_id}
