"""A supervised echo worker in any placement, and modules that exist for one test only."""

import contextlib
import importlib
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import mlxcel
from mlxcel.core import byte_vocab
from mlxcel.core.sampling import SamplingParams
from mlxcel.link.messages import PartSpec, Submit, WorkerSpec
from mlxcel.link.supervisor import Supervisor

FAULTS = [
    {"when": "^crash", "at_token": 2, "kind": "crash"},
    {"when": "^hang", "at_token": 2, "kind": "hang"},
    {"when": "^error", "at_token": 2, "kind": "error"},
]
ECHO = {
    "script": [{"when": "^hello", "say": "hi there"}],
    "faults": FAULTS,
    "delay_ms": 0,
    "window": 4096,
    "scheduler": {"parallel": 2, "max_batch_size": None, "no_batch": False},
    "max_queue_depth": 1,
    "ctx_size": 0,
}
WORKERS = {
    "heartbeat": {"interval_s": 0.1, "timeout_s": 10.0},
    "tick_timeout_s": 20.0,
    "backoff": {"initial_s": 0.1, "factor": 2.0, "max_s": 1.0, "reset_s": 60.0},
    "start_timeout_s": 30.0,
    "exit_timeout_s": 10.0,
}


def _submit(request_id: str, text: str, *, max_tokens: int = 1000) -> Submit:
    tokens = [byte_vocab.USER, *text.encode(), byte_vocab.END, byte_vocab.ASSISTANT]
    return Submit(
        id=request_id,
        tokens=struct.pack(f"<{len(tokens)}i", *tokens),
        sampling=SamplingParams(),
        max_tokens=max_tokens,
        eos_ids=byte_vocab.TURN_ENDS,
    )


@pytest.fixture
def submit() -> Callable[..., Submit]:
    return _submit


@pytest.fixture
def plain_options() -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the echo worker and of its supervisor."""
    return ECHO, WORKERS


@pytest.fixture
def supervisor_of() -> Callable[..., Supervisor]:
    def make(
        placement: str = "process",
        *,
        workers: dict[str, Any] | None = None,
        parts: list[PartSpec] | None = None,
        factory: str = "mlxcel.engine.echo:EchoWorker",
        **echo: Any,
    ) -> Supervisor:
        options = ECHO | echo
        return Supervisor(
            WorkerSpec(name="chat", factory=factory, options=options, parts=parts or []),
            placement=placement,
            options=WORKERS | (workers or {}),
            max_queue_depth=options["max_queue_depth"],
        )

    return make


@pytest.fixture
def running(supervisor_of: Callable[..., Supervisor]) -> Callable[..., Any]:
    @contextlib.asynccontextmanager
    async def run(placement: str = "process", **changes: Any) -> AsyncIterator[Supervisor]:
        supervisor = supervisor_of(placement, **changes)
        await supervisor.start()
        try:
            yield supervisor
        finally:
            await supervisor.stop()

    return run


@pytest.fixture
def extra_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Makes `mlxcel.NAME` importable, here and in the processes that are started from here."""
    package, site = tmp_path / "extra", tmp_path / "site"
    package.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        f"import mlxcel\nmlxcel.__path__.append({str(package)!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setattr(mlxcel, "__path__", [*mlxcel.__path__, str(package)])

    def write(name: str, source: str) -> str:
        (package / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return f"mlxcel.{name}"

    return write
