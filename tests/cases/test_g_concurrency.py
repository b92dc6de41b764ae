"""Public faults, family G: many requests at once, memory, seeds."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cases.asking import await_idle, opened, processes, stream
from tests.whole.program import Program, chat_body, text_of

pytestmark = pytest.mark.whole

MARKERS = "ABCDEFGHIJKLMNOP"
ROUNDS = 5
NEUTRAL = {"cache_prompt": False}


def _prompts() -> list[str]:
    """Sixteen of lengths 5 to 400, each of words that only it has."""
    rng = random.Random(965)
    lengths = [5, 400, *(rng.randint(6, 399) for _ in MARKERS[2:])]
    return [
        f"{marker}{''.join(rng.choice(f'{marker}{marker.lower()} ') for _ in range(length - 1))}"
        for marker, length in zip(MARKERS, lengths, strict=True)
    ]


PROMPTS = _prompts()


def _asked(program: Program, prompt: str, streamed: bool, max_tokens: int) -> tuple[str, int]:
    """(text, prompt tokens) of one answer, by either form."""
    body = chat_body(prompt, max_tokens=max_tokens, **NEUTRAL)
    if streamed:
        seen = stream(program, body | {"stream_options": {"include_usage": True}})
        return seen.text, seen.chunks[-1]["usage"]["prompt_tokens"]
    answer = program.chat(prompt, max_tokens=max_tokens, **NEUTRAL)
    return text_of(answer), answer["usage"]["prompt_tokens"]


def _together(program: Program, order: Sequence[int], max_tokens: int) -> dict[int, Any]:
    """All at once, every second one as a stream."""

    def ask(place: int) -> tuple[str, int]:
        return _asked(program, PROMPTS[place], place % 2 == 0, max_tokens)

    with ThreadPoolExecutor(len(order)) as pool:
        return dict(zip(order, pool.map(ask, order), strict=True))


@pytest.mark.parametrize("server", ["tiny_server", "echo"])
def test_g1_answers_do_not_cross(tiny_server: Program, echo: Program, server: str) -> None:
    """G1: sixteen requests at once got parts of each other's prompts.

    https://github.com/ml-explore/mlx-lm/issues/965

    The real engine in float32 gives the solo text exactly; echo says its own prompt.
    """
    program = {"tiny_server": tiny_server, "echo": echo}[server]
    max_tokens = 24 if program is tiny_server else 500
    solo = {n: _asked(program, prompt, False, max_tokens) for n, prompt in enumerate(PROMPTS)}
    assert len({text for text, _ in solo.values()}) == len(PROMPTS)
    assert [count for _, count in solo.values()] == [len(p) + 3 for p in PROMPTS]
    if program is echo:
        assert [text for text, _ in solo.values()] == PROMPTS
    rng = random.Random(1)
    for _ in range(ROUNDS):
        order = rng.sample(range(len(PROMPTS)), len(PROMPTS))
        assert _together(program, order, max_tokens) == solo


@pytest.mark.parametrize("at_once", [1, 5], ids=["in-turn", "in-parallel"])
def test_g5_without_a_seed_answers_differ(tiny_server: Program, at_once: int) -> None:
    """G5: without a seed every answer was identical.

    https://github.com/Blaizzy/mlx-vlm/issues/1818
    """

    def ask(_: int) -> str:
        return text_of(tiny_server.chat("hi", temperature=1, max_tokens=24))

    with ThreadPoolExecutor(at_once) as pool:
        texts = list(pool.map(ask, range(5)))
    assert len(set(texts)) >= 4


@pytest.mark.parametrize("seed", [-1, None, 4294967295], ids=["minus-one", "null", "folded"])
def test_g5_the_spellings_of_no_seed(tiny_server: Program, seed: int | None) -> None:
    """G5's kind: every way to say "any seed" draws a new one."""
    texts = {
        text_of(tiny_server.chat("hi", temperature=1, max_tokens=24, seed=seed)) for _ in range(5)
    }
    assert len(texts) >= 4


def test_g5_a_seed_gives_its_text_again(tiny_server: Program) -> None:
    """G5's kind: the same seed is the same text, alone and among others."""

    def ask(seed: int) -> str:
        return text_of(tiny_server.chat("hi", temperature=1, max_tokens=24, seed=seed))

    alone = [ask(seed) for seed in range(5)]
    assert len(set(alone)) >= 4
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(ask, range(5))) == alone


REQUESTS = 600
WARM = 200
GROWTH = 1.03
TOKENS = 32


@pytest.mark.slow
def test_g3_memory_does_not_grow_with_requests(long_tiny: Program) -> None:
    """G3: resident memory rose with every request, abandoned ones included.

    https://github.com/ollama/ollama/issues/17875
    """
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: _one(long_tiny, n), range(WARM)))
        warm = _resident_bytes(long_tiny)
        list(pool.map(lambda n: _one(long_tiny, n), range(WARM, REQUESTS)))
    after = _resident_bytes(long_tiny)
    grown = {name: after[name] / warm[name] for name in warm}
    assert max(grown.values()) < GROWTH, f"{grown} from {warm} to {after}"


def _one(program: Program, number: int) -> None:
    """Every second one is left in mid-stream, with most of its answer to come."""
    text = f"request {number:04}"
    if number % 2:
        stream(program, chat_body(text, max_tokens=TOKENS))
        return
    with opened(program, chat_body(text, stream=True, max_tokens=10 * TOKENS)) as response:
        response.read(1)


def _resident_bytes(program: Program) -> dict[str, int]:
    await_idle(program, 5.0)
    return {name: p.memory_info().rss for name, p in processes(program).items()}
