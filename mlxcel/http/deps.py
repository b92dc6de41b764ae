"""What the handlers work with. One object per server, made once, handed to every handler."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from mlxcel.core.settings import Settings
from mlxcel.core.status import WorkerStatus
from mlxcel.http.auth import KeySet
from mlxcel.http.inflight import InFlight
from mlxcel.http.live import LiveAnswers
from mlxcel.http.options import ServerOptions
from mlxcel.http.resumable import StreamSessions
from mlxcel.metrics.meter import RequestMeter
from mlxcel.metrics.scrape import Scrapes
from mlxcel.storage.responses import ResponseStore
from mlxcel.storage.transcripts import Transcripts


class Patched(Protocol):
    """What a change of settings did: four values for the wire."""

    @property
    def applied(self) -> Mapping[str, Any]: ...
    @property
    def rejected(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def current(self) -> Mapping[str, Any]: ...
    @property
    def fingerprint(self) -> str: ...


class LiveSettings(Protocol):
    """The settings store as the HTTP side sees it; changes raise with status 409 or 412."""

    @property
    def current(self) -> Settings: ...

    def describe(self) -> dict[str, Any]: ...

    def patch(
        self,
        values: Mapping[str, object],
        *,
        op: Literal["merge", "replace"] = "merge",
        atomic: bool = False,
        if_match: str | None = None,
    ) -> Patched: ...

    def history(self) -> list[dict[str, Any]]: ...

    def revert(self, version: int | None = None, *, if_match: str | None = None) -> Patched: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    options: ServerOptions
    keys: KeySet
    settings: LiveSettings
    statuses: Callable[[], Sequence[WorkerStatus]]
    inflight: InFlight
    meter: RequestMeter
    """Is told of every request that was answered."""
    scrapes: Scrapes
    streams: StreamSessions = field(default_factory=StreamSessions)
    live: LiveAnswers = field(default_factory=LiveAnswers)
    responses: ResponseStore
    """Finished answers of the Responses routes, for those who come back."""
    transcripts: Transcripts
    """The conversations that requests of these routes name."""
    ports: Mapping[str, Any]
    """What rows may need, by name; each handler knows the protocol of its own: `generate` is a
    `core.ports.Generator`."""
