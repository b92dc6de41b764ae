"""The official client of OpenAI: what several streams say at once. All it can ask for, and both of
its forms, are in `scenarios/`."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import OpenAI

from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PROMPTS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Count from one to ten.",
    "Tell me, in some detail, why the sky looks blue to somebody who stands on the ground at noon.",
)


def sdk(program: Program, key: str = "none") -> OpenAI:
    client = OpenAI(base_url=f"{program.url}/v1", api_key=key, timeout=60)
    return client.with_options(max_retries=0)


def ask(client: OpenAI, text: str, **fields: Any) -> Any:
    sent: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": text}]}
    return client.chat.completions.create(**sent | fields)


def streamed(client: OpenAI, text: str, **fields: Any) -> str:
    chunks = ask(client, text, stream=True, **fields)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def test_four_streams_at_once_say_what_each_says_alone(smollm2: Program) -> None:
    client = sdk(smollm2)
    alone = [streamed(client, text, max_tokens=32, temperature=0) for text in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        together = list(
            pool.map(lambda text: streamed(client, text, max_tokens=32, temperature=0), PROMPTS)
        )
    assert together == alone
    assert len(set(alone)) == len(PROMPTS)
    assert "Paris" in alone[0]


def test_same_seed_says_the_same_alone_and_beside_others(tiny_server: Program) -> None:
    client = sdk(tiny_server)

    def text(seed: int) -> str:
        return streamed(client, f"say {seed % 2}", seed=seed, temperature=0.9, max_tokens=48)

    seeds = list(range(1, 9))
    alone = [text(seed) for seed in seeds]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(text, seeds))
    assert together == alone
    assert len(set(alone)) == len(seeds)
