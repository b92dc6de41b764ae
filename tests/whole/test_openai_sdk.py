"""The official client of OpenAI, unchanged, against the running program."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.whole.program import Program

pytestmark = pytest.mark.whole

KEY = "sk-whole"
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


@pytest.fixture(scope="module")
def locked() -> Iterator[Program]:
    """Needs a key, and knows its own model alone."""
    words = ("model=echo", f"server.api_keys=[{KEY}]", "routes.unknown_model=refuse")
    with Program(*words) as program:
        yield program


def test_answer_in_one_piece(echo: Program) -> None:
    answer = ask(sdk(echo), "hello")
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_stream_with_usage(echo: Program) -> None:
    chunks = list(
        ask(sdk(echo), "héllo", stream=True, stream_options={"include_usage": True}),
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "héllo"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 6
    assert [c.usage for c in chunks[:-1] if c.usage is not None] == []
    assert len({c.id for c in chunks}) == 1


@pytest.mark.asyncio
async def test_async_client(echo: Program) -> None:
    async with AsyncOpenAI(base_url=f"{echo.url}/v1", api_key="none", max_retries=0) as client:
        sent: Any = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}
        answer = await client.chat.completions.create(**sent)
        assert answer.choices[0].message.content == "hello"
        stream = await client.chat.completions.create(**sent, stream=True)
        parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(parts) == "hello"


@pytest.mark.slow
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


def test_wrong_field_is_a_bad_request_that_names_it(echo: Program) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(sdk(echo), "hello", temperature="hot")
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"
    assert "temperature" in caught.value.message


def test_prompt_beyond_the_window_has_the_code_of_openai(echo: Program) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(sdk(echo), "x" * 5000)
    assert caught.value.code == "context_length_exceeded"


def test_wrong_key_is_an_authentication_error(locked: Program) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        ask(sdk(locked, "sk-wrong"), "hello")
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError):
        sdk(locked, "sk-wrong").models.list()


def test_right_key_is_let_in(locked: Program) -> None:
    [model] = sdk(locked, KEY).models.list().data
    answer = ask(sdk(locked, KEY), "hello", model=model.id)
    assert answer.choices[0].message.content == "hello"


def test_unknown_model_is_not_found_where_names_are_checked(locked: Program) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(sdk(locked, KEY), "hello", model="gpt-none")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_unknown_route_is_not_found(echo: Program) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        sdk(echo).fine_tuning.jobs.list()
    assert caught.value.type == "not_found_error"


def test_models_are_listed(smollm2: Program) -> None:
    models = sdk(smollm2).models.list()
    assert [model.id for model in models] == ["SmolLM2-135M-Instruct"]
    assert models.object == "list"
    assert models.data[0].object == "model"
