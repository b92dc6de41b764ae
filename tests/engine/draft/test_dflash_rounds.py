"""A DFlash head in the engine: on a target whose KV is cut, and on one that has to read anew."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxcel.core.cache import CacheTag
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.dflash.drafter import Blocks, DFlash
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.request import cached_tokens
from mlxcel.weights.load import LoadedModel
from tests.engine.draft.dflash_pair import drafter_of, load_head
from tests.engine.draft.test_rounds import Oracle, answered, rounds_of
from tests.engine.driver import Driver, submit
from tests.tiny.dflash import CONFIG, build_head, build_target
from tests.tiny.families import QWEN3_5, build_family_checkpoint

KIND = {"kind": "dflash", "max_batch": 4, "policy": "graded"}
PROMPTS = [[5], list(range(31)), [i % 250 for i in range(200)]]
LENGTHS = [1, 2, 17]
WAYS: list[dict[str, Any]] = [{}, {"temperature": 1.0, "seed": 7}]
CASES = [
    *((prompt, length, WAYS[0]) for prompt, length in product(PROMPTS, LENGTHS)),
    *((prompt, 17, WAYS[1]) for prompt in PROMPTS),
]
CHUNK = 100
"""Tokens read at once, of a prompt by the target and of rows by a drafter."""
BLOCK: int = CONFIG["block_size"]
TAPS = {"mask_token_id": 263, "target_layer_ids": [3, 0, 2]}
"""Not in the order in which the target runs."""
CLOSE = 1e-4

Foresee = Callable[[list[int], int], list[int]]


class Watched(DFlash):
    """Remembers what it was shown and what it would have said; says what is put in its mouth."""

    def __init__(self, blocks: Blocks, sampling: SamplingParams, foresee: Foresee | None) -> None:
        super().__init__(blocks, sampling, vocab=CONFIG["vocab_size"])
        self.text: list[int] = []
        self.rows: list[mx.array] = []
        self.drafts: list[list[int]] = []
        self._foresee = foresee

    def hear(self, tokens: Sequence[int]) -> None:
        super().hear(tokens)
        self.text.extend(tokens)

    def look(self, rows: mx.array) -> None:
        super().look(rows)
        self.rows.append(rows)

    def propose(self, count: int) -> list[int]:
        drafts = super().propose(count)
        # The anchor stands right behind the context, in every layer.
        assert {context.offset for context in self._contexts} == {len(self.text) - 1}
        self.drafts.append(drafts)
        return drafts if self._foresee is None else self._foresee(self.text, count)

    @property
    def shown(self) -> mx.array:
        return mx.concatenate(self.rows)


class Heads:
    """Of the same folder; `made` are the drafters of all rows."""

    def __init__(self, folder: Path, foresee: Foresee | None = None) -> None:
        self.made: list[Watched] = []
        self._folder = folder
        self._foresee = foresee

    def __call__(self, model: LoadedModel) -> DraftHead:
        head = load_head(self._folder, model)
        self._blocks = drafter_of(head)._blocks
        return replace(head, make=self._make)

    def _make(self, sampling: SamplingParams) -> Watched:
        self.made.append(Watched(self._blocks, sampling, self._foresee))
        return self.made[-1]


@pytest.fixture(scope="module", params=["qwen3", "qwen3_5"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dflash") / request.param
    if request.param == "qwen3":
        return build_target(folder)
    return build_family_checkpoint(folder, QWEN3_5, window=512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sliding = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9}
    return build_head(tmp_path_factory.mktemp("dflash") / "head", dflash_config=TAPS, **sliding)


@pytest.fixture(scope="module")
def plain(target: Path) -> Iterator[Driver]:
    driver = Driver(target, parallel=2)
    yield driver
    driver.close()


def rounds_expected(prompt: list[int], length: int) -> tuple[int, int]:
    """And tokens that come true, where all do. While the rows of a prompt are read, and where one
    token is left, a step is a plain one."""
    left = length - (len(prompt) - 2) // CHUNK if len(prompt) > 1 else length
    sizes = [min(BLOCK, left - n) for n in range(0, left, BLOCK)]
    rounds = [size for size in sizes if size > 1]
    return len(rounds), sum(rounds) - len(rounds)


def test_texts_are_those_of_plain_steps(target: Path, folder: Path, plain: Driver) -> None:
    """With what it proposes by itself, which is nonsense, and with the truth in its mouth."""
    answers: dict[tuple[int, ...], list[int]] = {}
    oracle = Oracle(answers, "right")
    own, right = Heads(folder), Heads(folder, oracle._foresee)
    for heads in (own, right):
        driver = Driver(target, parallel=2, draft=KIND, head=heads, prefill_chunk_size=CHUNK)
        for prompt, length, way in CASES:
            request = submit("r", prompt, length, **way)
            expected = answered(plain, request)
            answers.clear()
            answers[tuple(prompt)] = expected
            assert answered(driver, request) == expected
            assert driver.reason("r") is plain.reason("r")
            if heads is right:
                assert rounds_of(driver, "r") == rounds_expected(prompt, length)
            elif length > 2:
                assert rounds_of(driver, "r")[0]
        driver.close()


def test_two_rows_at_once(folder: Path, tmp_path: Path) -> None:
    target = build_target(tmp_path / "target")
    rows = [submit(name, [n, 3, 4], 20, **WAYS[n]) for n, name in enumerate("ab")]
    plain = Driver(target, parallel=2)
    expected = [answered(plain, row) for row in rows]
    driver = Driver(target, parallel=2, draft=KIND, head=Heads(folder))
    driver.run(*rows)
    assert [driver.tokens(row.id) for row in rows] == expected
    assert all(rounds_of(driver, row.id)[0] for row in rows)


def test_rows_are_made_of_what_layers_make(folder: Path, tmp_path: Path) -> None:
    """The target's layers run one by one; their outputs in the order of the file."""
    heads = Heads(folder)
    driver = Driver(build_target(tmp_path / "target"), draft=KIND, head=heads)
    prompt = list(range(40))
    driver.run(submit("r", prompt, 12))
    text = [*prompt, *driver.tokens("r")]
    inner = driver.model.network.model
    x, made = inner.embed_tokens(mx.array([text])), []
    for layer in inner.layers:
        x = layer(x, "causal", None)
        made.append(x)
    network = heads._blocks.network
    taps = mx.concatenate([made[n] for n in TAPS["target_layer_ids"]], axis=-1)
    expected = network.hidden_norm(network.fc(taps))[0]
    (drafter,) = heads.made
    assert len(drafter.shown) > len(prompt)
    assert mx.abs(drafter.shown - expected[: len(drafter.shown)]).max().item() < CLOSE


def test_a_prompt_that_is_kept_gives_the_same_drafts(target: Path, folder: Path) -> None:
    """Its context rows come out of the cache."""
    warm, cold = Heads(folder), Heads(folder)
    driver = Driver(target, parallel=1, draft=KIND, head=warm)
    prompt = list(range(100))
    driver.run(submit("a", prompt, 3, cache=CacheTag()))
    prompt = [*prompt, *driver.tokens("a"), 7, 8]
    driver.run(submit("b", prompt, 6, cache=CacheTag()))
    other = Driver(target, parallel=1, draft=KIND, head=cold)
    other.run(submit("b", prompt, 6, cache=CacheTag()))
    assert (cached_tokens(driver.finish("b").timings.cache) or 0) >= 96
    assert not cached_tokens(other.finish("b").timings.cache)
    one, two = warm.made[-1], cold.made[-1]
    assert one.text == two.text
    assert one.drafts == two.drafts
    assert one.drafts
    assert mx.abs(one.shown - two.shown).max().item() < CLOSE
    for made in (driver, other):
        made.close()
