"""A real server on a free loopback port, with a scripted generator in place of the model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx

from mlxcel.core.errors import MlxcelError
from mlxcel.core.events import Accepted, Event, Finished, FinishReason, TextDelta, Timings, Usage
from mlxcel.core.ports import ServedModel
from mlxcel.core.request import GenerationRequest
from mlxcel.core.settings import SamplingDefaults, Settings
from mlxcel.core.status import ModelInfo, State, WorkerStats, WorkerStatus
from mlxcel.http.server import HttpServer

USAGE = Usage(prompt_tokens=3, completion_tokens=2)
TIMINGS = Timings(queued_ms=1.0, prompt_ms=10.0, decode_ms=20.0, total_ms=40.0)
FINISHED = Finished(reason=FinishReason.EOS, usage=USAGE, timings=TIMINGS)
HELLO: list[Event] = [Accepted(3), TextDelta("Hel"), TextDelta("lo"), FINISHED]
MODEL = ServedModel(
    id="tiny",
    names=("tiny", "alias"),
    aliases=("alias",),
    family="llama",
    vocab_size=264,
    hidden_size=64,
    train_window=512,
    context_window=0,
)
INFO = ModelInfo(
    family="llama",
    vocab_size=264,
    context_window=512,
    train_window=512,
    hidden_size=64,
    parameters=1000,
    weights_bytes=4000,
    precision="float32 (cpu)",
    device="cpu",
)
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}

Step = Event | float | Exception | asyncio.Event
"""An event to yield, seconds to wait, an error to raise, or a gate to wait for."""


class Scripted:
    """A generator that plays a script; it keeps what the server did with it."""

    def __init__(self) -> None:
        self.script: list[Step] = list(HELLO)
        self.requests: list[GenerationRequest] = []
        self.yielded = 0
        self.closed = asyncio.Event()
        self.state = State.OK
        self.stats = WorkerStats(slots=4, started=9, completed=7, decode_tokens=5, decode_steps=3)

    @property
    def model(self) -> ServedModel:
        return MODEL

    def status(self) -> WorkerStatus:
        return WorkerStatus(name="chat", state=self.state, pid=42, stats=self.stats, model=INFO)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.requests.append(request)
        self.closed.clear()
        try:
            for step in self.script:
                match step:
                    case Exception():
                        raise step
                    case float():
                        await asyncio.sleep(step)
                    case asyncio.Event():
                        await step.wait()
                    case _:
                        self.yielded += 1
                        yield step
        finally:
            self.closed.set()


class StillSettings:
    """Settings that never change, for tests of everything else."""

    current = Settings(
        version=1,
        fingerprint="0" * 64,
        sampling=SamplingDefaults(
            temperature=0.8, top_p=0.95, top_k=40, min_p=0.05, seed=None, max_tokens=512
        ),
        decode_timeout_s=600,
        template_kwargs={},
    )

    def describe(self) -> dict[str, Any]:
        return {"schema": [], "current": {}, "fingerprint": "0" * 64}

    def patch(self, values: Mapping[str, object], **how: object) -> Any:
        raise MlxcelError("these settings stand still")

    def history(self) -> list[dict[str, Any]]:
        return []

    def revert(self, version: int | None = None, *, if_match: str | None = None) -> Any:
        raise MlxcelError("these settings stand still")


def _row(methods: str, paths: str, handler: str, **more: object) -> dict[str, Any]:
    row = {"methods": methods.split(), "paths": paths.split(), "handler": handler}
    return row | {"dialect": "openai", "needs": [], "auth": "key", "when": True} | more


ROWS = {
    "chat_completions": _row(
        "POST",
        "/v1/chat/completions /chat/completions",
        "generate",
        codec="openai.chat",
        needs=["generate"],
        absent="unsupported",
    ),
    "models": _row("GET HEAD", "/v1/models /models", "models.list", needs=["generate"]),
    "health": _row("GET HEAD", "/health /v1/health /", "health.show", auth="none"),
    "settings_get": _row(
        "GET HEAD", "/v1/settings /settings", "settings.show", when="routes.settings"
    ),
    "settings_patch": _row(
        "PATCH", "/v1/settings /settings", "settings.patch", when="routes.settings"
    ),
    "settings_history": _row(
        "GET", "/v1/settings/history", "settings.history", when="routes.settings"
    ),
    "settings_revert": _row(
        "POST", "/v1/settings/revert", "settings.revert", when="routes.settings"
    ),
}


def server_options(**changed: object) -> dict[str, Any]:
    """The `server` section with the routes; `routes` given by name is laid over the default."""
    routes = {"rows": ROWS, "settings": "auto", "require_model": True, "unknown_model": "accept"}
    options: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "api_prefix": "",
        "api_keys": [],
        "api_key_files": [],
        "sse_ping_interval": 15,
        "cors": {
            "origins": ["*"],
            "methods": ["GET", "POST", "OPTIONS"],
            "headers": ["Authorization", "Content-Type"],
            "credentials": True,
        },
        "body_bytes": 1_000_000,
        "http_timeout_secs": 60,
    }
    more = dict(changed)
    routes |= more.pop("routes", {})  # type: ignore[arg-type]
    return options | more | {"routes": routes}


class Site:
    """A running server and a client of it."""

    def __init__(self, server: HttpServer, address: str, generator: Scripted) -> None:
        self.server = server
        self.address = address
        self.generator = generator
        self.http = httpx.AsyncClient(base_url=f"http://{address}", timeout=20)

    async def post(self, body: Any = None, **more: Any) -> httpx.Response:
        body = BODY if body is None else body
        return await self.http.post("/v1/chat/completions", json=body, **more)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.address.rsplit(":", 1)
        return await asyncio.open_connection(host, int(port))


Start = Callable[..., Awaitable[Site]]


async def eventually(holds: Callable[[], object], within_s: float = 5) -> None:
    """Waits until something holds; fails when it does not in time."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)
