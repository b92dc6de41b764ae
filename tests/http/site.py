"""A real server on a free loopback port, with a scripted generator in place of the model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from mlxcel.core.conversations import Conversations
from mlxcel.core.errors import MlxcelError
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    TextDelta,
    Timings,
    Usage,
)
from mlxcel.core.ports import ModelFacts, ServedModel, TemplateAbilities
from mlxcel.core.request import GenerationRequest
from mlxcel.core.status import ModelInfo, State, WorkerStats, WorkerStatus
from mlxcel.generation.adapters import Adapters
from mlxcel.http.server import HttpServer
from mlxcel.link.messages import SetLora
from tests.settings import settings

CONF = Path(__file__).parents[2] / "conf" / "routes"

USAGE = Usage(prompt_tokens=3, completion_tokens=2)
TIMINGS = Timings(queued_ms=1.0, prompt_ms=10.0, decode_ms=20.0, total_ms=40.0)
ENDING: list[Event] = [ChoiceFinished(FinishReason.EOS), Finished(usage=USAGE, timings=TIMINGS)]
HELLO: list[Event] = [Accepted(3), TextDelta("Hel"), TextDelta("lo"), *ENDING]
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
FACTS = ModelFacts(
    path="/models/tiny",
    chat_template="",
    abilities=TemplateAbilities(),
    bos_token="<s>",
    eos_token="</s>",
    has_tool_parser=True,
    weights_type="MLX Q4",
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
SAMPLING: dict[str, Any] = {
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "xtc": {"probability": 0.0, "threshold": 0.1},
    "mirostat": {"mode": 0, "eta": 0.1, "tau": 5.0},
    "dynatemp": {"range": 0.0, "exponent": 1.0},
    "adaptive": {"named": False, "target": -1.0, "decay": 0.9},
    "logit_bias": [],
    "ignore_eos": False,
    "stop": [],
}
"""The section `generation.sampling` at its defaults."""
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}

Step = Event | float | Exception | asyncio.Event
"""An event to yield, seconds to wait, an error to raise, or a gate to wait for."""


class Scripted:
    """A generator that plays a script; it keeps what the server did with it."""

    def __init__(self) -> None:
        self.script: list[Step] = list(HELLO)
        self.requests: list[GenerationRequest] = []
        self.yielded = 0
        self.ended_thinking: list[str] = []
        self.closed = asyncio.Event()
        self.state = State.OK
        self.stats = WorkerStats(slots=4, started=9, completed=7, decode_tokens=5, decode_steps=3)
        self.conversations: Conversations | None = None
        self.facts = FACTS
        self.window = 512
        self.adapters = Adapters((), is_fused=False, chat=self)

    def set_lora(self, message: SetLora, /) -> None:
        raise AssertionError("there are no adapters")

    @property
    def model(self) -> ServedModel:
        return MODEL

    def status(self) -> WorkerStatus:
        return WorkerStatus(name="chat", state=self.state, pid=42, stats=self.stats, model=INFO)

    async def count(self, request: GenerationRequest) -> int:
        return USAGE.prompt_tokens

    async def render(self, request: GenerationRequest) -> str:
        return "".join(f"<{message.role}>{message.text}" for message in request.chat.messages)

    def end_thinking(self, request_id: str) -> None:
        self.ended_thinking.append(request_id)

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

    current = settings()

    def describe(self) -> dict[str, Any]:
        return {"schema": [], "current": {}, "fingerprint": "0" * 64}

    def patch(self, values: Mapping[str, object], **how: object) -> Any:
        raise MlxcelError("these settings stand still")

    def history(self) -> list[dict[str, Any]]:
        return []

    def revert(self, version: int | None = None, *, if_match: str | None = None) -> Any:
        raise MlxcelError("these settings stand still")


def _shipped_routes() -> dict[str, Any]:
    """The routes section as the plan gives it: rows from every file, `auto` decided."""
    routes: dict[str, Any] = yaml.safe_load((CONF / "default.yaml").read_text())
    files = [yaml.safe_load(path.read_text()) for path in sorted(CONF.glob("rows/*.yaml"))]
    del routes["defaults"]
    return routes | {
        "settings": True,
        "rows": {k: row for file in files for k, row in file.items()},
    }


ROUTES = _shipped_routes()
ROWS: dict[str, Any] = ROUTES["rows"]


def server_options(**changed: object) -> dict[str, Any]:
    """The `server` section with the routes; `routes` given by name is laid over the shipped."""
    options: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "metrics_port": None,
        "reuse_port": False,
        "tls": {"cert": None, "key": None},
        "api_prefix": "",
        "api_keys": [],
        "api_key_files": [],
        "sse_ping_interval": 15,
        "cors": {
            "origins": ["*"],
            "allowed_origins": None,
            "methods": ["GET", "POST", "OPTIONS"],
            "headers": ["Authorization", "Content-Type"],
            "expose": ["X-Cache-Status", "ETag"],
            "credentials": True,
        },
        "body_bytes": 1_000_000,
        "media": {
            "media_path": None,
            "allow_private_media_urls": False,
            "image": {"payload_bytes": 67_108_864, "max_images": 16},
            "video": {"dir_allowlist": []},
        },
        "http_timeout_secs": 60,
        "websocket_secs": 60,
        "sampling": SAMPLING,
        "kv": {"mode": "fp16", "bits": 0},
        "max_kv_size": 0,
        "grammar": None,
        "json_schema": None,
        "keep": 0,
        "reasoning_alias": "reasoning",
        "responses_store": {"max_entries": 9, "max_bytes": 99_999, "ttl_secs": 60, "file": None},
        "conversation_store": {"max_entries": 9, "max_bytes": 99_999, "ttl_secs": 60},
    }
    more: dict[str, Any] = dict(changed)
    return options | more | {"routes": ROUTES | more.get("routes", {})}


class Site:
    """A running server and a client of it."""

    def __init__(self, server: HttpServer, address: str, generator: Scripted) -> None:
        self.server = server
        self.address = address
        self.generator = generator
        file = address.removeprefix("unix:")
        uds = None if file == address else file
        url = address if "://" in address else f"http://{'localhost' if uds else address}"
        # Unverified: reading the certificates of the world takes 20 ms.
        transport = httpx.AsyncHTTPTransport(uds=uds, verify=False)
        self.http = httpx.AsyncClient(base_url=url, timeout=20, transport=transport)

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
