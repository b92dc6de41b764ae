"""Public faults, family G: many requests at once, memory, seeds."""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cases.asking import await_idle, opened, processes, stream
from tests.cases.routes import (
    MARKED_ROUTES,
    ROUTES,
    STEERED_ROUTES,
    Route,
    Seen,
    name_of,
)
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.whole

MARKERS = "ABCDEFGHIJKLMNOP"
ROUNDS = 3
NEUTRAL = {"cache_prompt": False}


def _prompts() -> list[str]:
    """Sixteen of lengths 5 to 400, each of words that only it has."""
    rng = random.Random(966)
    lengths = [5, 400, *(rng.randint(6, 399) for _ in MARKERS[2:])]
    return [
        f"{marker}{''.join(rng.choice(f'{marker}{marker.lower()} ') for _ in range(length - 1))}"
        for marker, length in zip(MARKERS, lengths, strict=True)
    ]


PROMPTS = _prompts()


Asked = tuple[str, int]
"""What was said, and tokens of the prompt."""


def _asked(program: Program, route: Route, prompt: str, streamed: bool, max_tokens: int) -> Asked:
    """One answer, by either form."""
    ask = route.streamed if streamed else route.plain
    seen: Seen = ask(program, prompt, max_tokens=max_tokens, **NEUTRAL)
    return seen.text, seen.counts[0]


def _route(place: int) -> Route:
    """Each has its share of the prompts."""
    return ROUTES[place % len(ROUTES)]


def _together(program: Program, order: Sequence[int], max_tokens: int) -> dict[int, Any]:
    """All at once, every second one as a stream."""

    def ask(place: int) -> Asked:
        return _asked(program, _route(place), PROMPTS[place], place % 2 == 0, max_tokens)

    with ThreadPoolExecutor(len(order)) as pool:
        return dict(zip(order, pool.map(ask, order), strict=True))


@pytest.mark.parametrize("server", ["tiny_server", "echo"])
def test_g1_answers_do_not_cross(tiny_server: Program, echo: Program, server: str) -> None:
    """G1: sixteen requests at once got parts of each other's prompts.

    https://github.com/ml-explore/mlx-lm/issues/965

    The real engine in float32 gives the solo text exactly; echo says its own prompt. The routes
    are mixed.
    """
    program = {"tiny_server": tiny_server, "echo": echo}[server]
    max_tokens = 24 if program is tiny_server else 500
    solo = {
        place: _asked(program, _route(place), prompt, False, max_tokens)
        for place, prompt in enumerate(PROMPTS)
    }
    assert len({text for text, _ in solo.values()}) == len(PROMPTS)
    frame = {route: route.plain(program, "a", max_tokens=1).counts[0] - 1 for route in ROUTES}
    counts = [len(prompt) + frame[_route(place)] for place, prompt in enumerate(PROMPTS)]
    assert [count for _, count in solo.values()] == counts
    if program is echo:
        assert [text for text, _ in solo.values()] == PROMPTS
    rng = random.Random(1)
    for _ in range(ROUNDS):
        order = rng.sample(range(len(PROMPTS)), len(PROMPTS))
        assert _together(program, order, max_tokens) == solo


def test_g1_each_says_the_marker_it_was_made_to_say(tiny_server: Program) -> None:
    """G1: the forms of sixteen answers do not cross either."""

    def say(place: int) -> str:
        route, marker = _route(place), MARKERS[place] * 5
        ask = route.streamed if place % 2 else route.plain
        seen: Seen = ask(
            tiny_server, PROMPTS[place], max_tokens=24, **NEUTRAL, **route.form({"const": marker})
        )
        return seen.text

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        for _ in range(ROUNDS):
            said = list(pool.map(say, range(len(PROMPTS))))
            assert said == [f'"{marker * 5}"' for marker in MARKERS]


@pytest.mark.parametrize("at_once", [1, 5], ids=["in-turn", "in-parallel"])
@pytest.mark.parametrize("route", MARKED_ROUTES, ids=name_of)
def test_g5_without_a_seed_answers_differ(long_tiny: Program, route: Route, at_once: int) -> None:
    """G5: without a seed every answer was identical.

    https://github.com/Blaizzy/mlx-vlm/issues/1818
    """

    def ask(_: int) -> str:
        return route.plain(long_tiny, "hi", temperature=1, max_tokens=24).text

    with ThreadPoolExecutor(at_once) as pool:
        texts = list(pool.map(ask, range(5)))
    assert len(set(texts)) >= 4


@pytest.mark.parametrize("seed", [-1, None, 4294967295], ids=["minus-one", "null", "folded"])
@pytest.mark.parametrize("route", STEERED_ROUTES, ids=name_of)
def test_g5_the_spellings_of_no_seed(tiny_server: Program, route: Route, seed: int | None) -> None:
    """G5's kind: every way to say "any seed" draws a new one."""
    fields = {"temperature": 1, "max_tokens": 16, "seed": seed}
    texts = {route.plain(tiny_server, "hi", **fields).text for _ in range(5)}
    assert len(texts) >= 4


@pytest.mark.parametrize("route", STEERED_ROUTES, ids=name_of)
def test_g5_a_seed_gives_its_text_again(tiny_server: Program, route: Route) -> None:
    """G5's kind: the same seed is the same text, alone and among others."""

    def ask(seed: int) -> str:
        return route.plain(tiny_server, "hi", temperature=1, max_tokens=24, seed=seed).text

    alone = [ask(seed) for seed in range(5)]
    assert len(set(alone)) >= 4
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(ask, range(5))) == alone


REQUESTS = 400
WARM = 200
GROWTH = 1.015
TOKENS = 32


@pytest.mark.slow
def test_g3_memory_does_not_grow_with_requests(long_tiny: Program) -> None:
    """G3: resident memory rose with every request, abandoned ones included.

    https://github.com/ollama/ollama/issues/17875
    """
    _assert_flat(long_tiny, STEERED_ROUTES, **NEUTRAL)


CACHE_BYTES = 2 * 2**20
WORDS = " and some words more, so that there is something to keep" * 5
"""So long that the tokenizer does not keep them: the byte tokenizer takes a text for one word, and
`tokenizers` remembers 10,000 words of less than 256 bytes."""


@pytest.fixture(scope="module")
def keeping_tiny(long_folder: Path) -> Iterator[Program]:
    """With a cache that a dozen requests fill."""
    bound = f"cache.prompt.capacity_bytes={CACHE_BYTES}"
    with Program(*serve_checkpoint(long_folder, bound)) as program:
        yield program


@pytest.mark.slow
def test_g3_the_cache_stays_within_its_bytes(keeping_tiny: Program) -> None:
    """G3 with prompts that are kept."""
    _assert_flat(keeping_tiny, ROUTES, WORDS)
    kept = _cache(keeping_tiny)
    assert CACHE_BYTES / 2 < kept["bytes"] <= CACHE_BYTES
    assert kept["evictions_lru"] > WARM


@pytest.fixture(scope="module")
def wide_tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """4 KiB of KV a token."""
    path = tmp_path_factory.mktemp("wide") / "tiny-wide"
    folder = build_tiny_checkpoint(path, hidden=256, heads=1, kv_heads=1, window=32768)
    with Program(*serve_checkpoint(folder)) as program:
        yield program


@pytest.mark.slow
def test_g3_a_reset_returns_the_memory(wide_tiny: Program) -> None:
    """G3's end: what was kept is no longer resident."""
    for number in range(40):
        _one(wide_tiny, ROUTES, number, WORDS, {})
    full, kept = _resident_bytes(wide_tiny)["worker"], _cache(wide_tiny)
    assert kept["bytes"] > 32 * 2**20
    status, body = wide_tiny.post("/v1/cache/reset", {})
    assert (status, body["freed_bytes"]) == (200, kept["bytes"])
    assert (_cache(wide_tiny)["bytes"], _cache(wide_tiny)["entries"]) == (0, 0)
    assert full - _resident_bytes(wide_tiny)["worker"] > kept["bytes"] / 2


def _cache(program: Program) -> dict[str, Any]:
    found = program.get("/v1/cache/stats")[1]
    assert isinstance(found, dict)
    return found


def _assert_flat(program: Program, routes: Sequence[Route], words: str = "", **fields: Any) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: _one(program, routes, n, words, fields), range(WARM)))
        warm = _resident_bytes(program)
        list(pool.map(lambda n: _one(program, routes, n, words, fields), range(WARM, REQUESTS)))
    after = _resident_bytes(program)
    grown = {name: after[name] / warm[name] for name in warm}
    assert max(grown.values()) < GROWTH, f"{grown} from {warm} to {after}"


def _one(
    program: Program, routes: Sequence[Route], number: int, words: str, fields: dict[str, Any]
) -> None:
    """By one route after the other. Every second one is left in mid-stream, with most of its
    answer to come."""
    route = routes[number // 2 % len(routes)]
    text = f"request {number:04}{words}"
    if number % 2:
        stream(program, route.body(text, max_tokens=TOKENS, **fields), path=route.path)
        return
    body = route.body(text, stream=True, max_tokens=10 * TOKENS, **fields)
    with opened(program, body, path=route.path) as response:
        response.read(1)


def _resident_bytes(program: Program) -> dict[str, int]:
    await_idle(program, 5.0)
    return {name: p.memory_info().rss for name, p in processes(program).items()}
