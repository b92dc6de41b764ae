"""Both clients, and the servers they talk to."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio

from mlxcel.text.bytes import BYTE_TEMPLATE
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.program import Program, serve_checkpoint
from tests.whole.scenarios.asking import KINDS, Ai, settle

KEY = "sk-scenario"
PREFIX = "/llm"
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
SECOND = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
SCRIPT = {
    "^call$": CALL,
    "^call two$": CALL + SECOND,
    "^say and call$": f"One moment. {CALL}",
    "^record$": '{"city": "Oslo", "days": 3}',
    "^and so$": "It rains in Oslo.",
}
FAULTS = {"^break late$": 4, "^break$": 0}
"""The token that an answer does not come to."""
THINKING = """\
{%- if reasoning_effort is defined %}{{ "<|system|>" ~ reasoning_effort ~ "<|end|>" }}{% endif -%}
"""
RECALLING = """\
{%- for message in messages if message.reasoning_content -%}
{{ "<|system|>" ~ message.reasoning_content ~ "<|end|>" }}
{%- endfor -%}
"""
PRIMING = """\
{%- if add_generation_prompt and enable_thinking %}{{ "<think>\\n" }}{% endif -%}
"""


class Connect(Protocol):
    def __call__(self, program: Program, *, path: str = ..., **options: Any) -> Ai: ...


@pytest_asyncio.fixture(params=KINDS)
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Makes a client of a server. It does not retry: what fails is seen."""
    made: list[Ai] = []

    def connected(program: Program, *, path: str = "/v1", **options: Any) -> Ai:
        make, transport = KINDS[request.param]
        given = {"api_key": "none", "max_retries": 0, "timeout": 60} | options
        # Reading the certificates of the world takes longer than most scenarios do.
        made.append(make(base_url=program.url + path, http_client=transport(verify=False), **given))
        return made[-1]

    yield connected
    for ai in made:
        await settle(ai.close())


@pytest.fixture(scope="session")
def scripted() -> Iterator[Program]:
    """Says what a scenario needs to the letter; what it has no line for it repeats."""
    lines = ", ".join(f"{{when: '{when}', say: '{say}'}}" for when, say in SCRIPT.items())
    faults = ", ".join(f"{{when: '{w}', at_token: {at}, kind: error}}" for w, at in FAULTS.items())
    words = ("model=echo", f"engine.script=[{lines}]", f"engine.faults=[{faults}]")
    with Program(*words) as program:
        yield program


@pytest.fixture(scope="session")
def narrow() -> Iterator[Program]:
    """One slot, a queue of one, 30 ms a token; it needs a key, and knows its own model alone."""
    words = (
        "model=echo",
        "scheduler.parallel=1",
        "scheduler.max_queue_depth=1",
        "engine.delay_ms=30",
        f"server.api_keys=[{KEY}]",
        f"server.api_prefix={PREFIX}",
        "routes.unknown_model=refuse",
        "limits.body_bytes=20000",
    )
    with Program(*words) as program:
        yield program


@pytest.fixture(scope="session")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A random model that opens a block of thought unless it is told not to; earlier thoughts are
    part of its prompt."""
    folder: Path = tmp_path_factory.mktemp("thinker") / "thinker"
    template = THINKING + RECALLING + BYTE_TEMPLATE + PRIMING
    build_tiny_checkpoint(folder, window=2048, markers=("<think>", "</think>"), template=template)
    with Program(*serve_checkpoint(folder)) as program:
        yield program
