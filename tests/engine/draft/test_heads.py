"""Drafters that read the target's hidden states: what they are shown, on targets whose state can be
cut and on those that have to read anew."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from mlxcel.core.cache import CacheTag
from mlxcel.core.sampling import AdaptiveP, Dry, Mirostat, SamplingParams
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.draft.taps import Tapped, halves, whole
from mlxcel.engine.request import cached_tokens
from mlxcel.link.messages import RowTokens, Submit
from mlxcel.weights.load import LoadedModel
from tests.engine.draft.test_rounds import Oracle, answered, rounds_of
from tests.engine.driver import Driver, submit
from tests.engine.families_driven import driven
from tests.tiny.families import FALCON_H1, GEMMA3, QWEN3_5

KIND = {"kind": "watching", "max_batch": 4, "policy": "graded"}
PROMPTS = [[5], list(range(31)), [i % 250 for i in range(200)]]


class Watching:
    """Says what an oracle says, and remembers what it was shown."""

    is_free = False
    odds = None

    def __init__(self, foresee: Callable[[list[int], int], list[int]]) -> None:
        self.heard: list[int] = []
        self.rows: list[mx.array] = []
        self._foresee = foresee

    def hear(self, tokens: Sequence[int]) -> None:
        self.heard.extend(tokens)

    def look(self, rows: mx.array) -> None:
        self.rows.append(rows)

    def propose(self, count: int) -> list[int]:
        assert sum(len(rows) for rows in self.rows) == len(self.heard) - 1
        return self._foresee(self.heard, count)


class Watchers:
    """The head; `made` are its drafters."""

    def __init__(self, taps: Sequence[int], oracle: Oracle, most: int = 5) -> None:
        self.made: list[Watching] = []
        self._taps, self._oracle, self._most = taps, oracle, most

    def __call__(self, model: LoadedModel) -> DraftHead:
        self.model = model
        return DraftHead(
            kind="watching",
            name="watching",
            folder=model.folder,
            network=model.network,
            width=model.hidden_size * max(1, len(self._taps)),
            most=self._most,
            taps=self._taps,
            project=None,
            make=self._make,
            about={},
        )

    def _make(self, _: SamplingParams) -> Watching:
        self.made.append(Watching(self._oracle._foresee))
        return self.made[-1]

    def expected(self, tokens: list[int]) -> mx.array:
        """The rows of a text, read at once by a network of its own caches."""
        tapped = Tapped(self.model.network, self._taps)
        caches = make_prompt_cache(tapped)
        tapped(mx.array([tokens]), cache=caches)
        return whole(*(caches[-1].state[:2]))


@pytest.fixture(params=["llama", "qwen3_5", "falcon_h1", "gemma3"])
def family(request: pytest.FixtureRequest) -> Iterator[str]:
    configs: dict[str, Any] = {"qwen3_5": QWEN3_5, "falcon_h1": FALCON_H1, "gemma3": GEMMA3}
    if request.param == "llama":
        yield request.param
        return
    with driven(configs[request.param]):
        yield request.param


def test_what_it_is_shown_is_what_the_target_makes(tiny: Path, family: str) -> None:
    """And texts are those of plain steps, whatever comes true."""
    plain = Driver(tiny, parallel=1)
    answers: dict[tuple[int, ...], list[int]] = {}
    for taps, kind in (((1, 0), "mixed"), ((), "right"), ((0,), "wrong")):
        head = Watchers(taps, Oracle(answers, kind))
        driver = Driver(tiny, parallel=1, draft=KIND, head=head, prefill_chunk_size=64)
        for prompt, way in zip(PROMPTS, ({}, {"temperature": 1.0, "seed": 3}, {}), strict=True):
            request = submit("r", prompt, 12, **way)
            expected = answered(plain, request)
            answers.clear()
            answers[tuple(prompt)] = expected
            assert answered(driver, request) == expected
            rounds, accepted = rounds_of(driver, "r")
            assert rounds
            assert (kind == "wrong") == (accepted == 0)
            shown = mx.concatenate(head.made[-1].rows)
            wanted = head.expected([*prompt, *expected])[: len(shown)]
            assert mx.abs(shown - wanted).max().item() < 1e-4, (family, taps)
            assert len(shown) >= len(prompt)
        driver.close()
    plain.close()


def test_a_prompt_that_is_kept_shows_its_rows_again(tiny: Path, family: str) -> None:
    head = Watchers((0, 1), Oracle({}, "right"))
    driver = Driver(tiny, parallel=1, draft=KIND, head=head)
    prompt = list(range(100))
    first = submit("a", prompt, 3, cache=CacheTag())
    driver.run(first)
    driver.run(submit("b", [*prompt, *driver.tokens("a"), 7, 8], 3, cache=CacheTag()))
    assert (cached_tokens(driver.finish("b").timings.cache) or 0) >= 96
    shown = mx.concatenate(head.made[-1].rows)
    wanted = head.expected(head.made[-1].heard)[: len(shown)]
    assert len(shown) > 100
    assert mx.abs(shown - wanted).max().item() < 1e-4
    driver.close()


FEEDBACK: list[dict[str, Any]] = [
    {"top_logprobs": 3},
    {"top_logprobs": 2, "is_post_sampling": True, "top_k": 20},
    {"presence_penalty": 0.9, "frequency_penalty": 0.3, "penalty_window": 16},
    {"dry": Dry(multiplier=1.0, base=1.75, allowed_length=1, window=32)},
    {"mirostat": Mirostat(version=2, rate=0.2, target=3.0)},
    {"mirostat": Mirostat(version=1, rate=0.2, target=3.0), "top_logprobs": 1},
    {"adaptive": AdaptiveP(target=0.3, decay=0.9)},
]


def test_draws_that_depend_on_what_was_said(tiny: Path) -> None:
    """Each place of a round is drawn with the history and the sampler's memory it would have had;
    two rows of different kinds in one round."""
    plain = Driver(tiny, parallel=2)
    answers: dict[tuple[int, ...], list[int]] = {}
    driver = Driver(tiny, parallel=2, draft=KIND, head=Watchers((0,), Oracle(answers, "mixed")))
    for n, way in enumerate(FEEDBACK):
        first = submit("a", [n, 2, 3], 14, **({"temperature": 1.0, "seed": n} | way))
        second = submit("b", [n, 9], 14, temperature=1.0, seed=n + 1)
        expected = [(answered(plain, r), scores(plain, r)) for r in (first, second)]
        answers.clear()
        answers |= {(n, 2, 3): expected[0][0], (n, 9): expected[1][0]}
        driver.frames.clear()
        driver.run(first, second)
        found = [(driver.tokens(r.id), scores(driver, r)) for r in (first, second)]
        assert found == expected, way
        assert all(rounds_of(driver, name)[1] for name in "ab"), way
    driver.close()
    plain.close()


def scores(driver: Driver, request: Submit) -> list[tuple[float, list[int]]]:
    events = [e for e in driver.events(request.id) if isinstance(e, RowTokens)]
    told = [one for event in events for one in event.scores or ()]
    return [(round(one.said, 3), [token for token, _ in one.top]) for one in told]


def test_halves_and_whole() -> None:
    seen = mx.arange(24).reshape(1, 3, 8)
    assert mx.array_equal(whole(*halves(seen)), seen[0]).item()
