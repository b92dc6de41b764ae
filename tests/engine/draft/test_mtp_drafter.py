"""One row's drafter: whatever it was told in whatever pieces, it proposes what the head says of
the whole text."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import pytest

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.draws import OwnDraws
from mlxcel.engine.draft.heads import DraftHead, HiddenDrafter
from mlxcel.engine.draft.mtp import load
from mlxcel.engine.draft.target import Target, target_of
from mlxcel.weights.load import LoadedModel
from tests.engine.draft.mtp_parts import heads, target
from tests.engine.draft.plain_qwen3_5_mtp import hidden_states
from tests.tiny.mtp import HIDDEN, build_head, build_target, head_weights

GREEDY = SamplingParams(temperature=0)
DRAWN = SamplingParams(temperature=1.0, seed=5)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return target(build_target(tmp_path_factory.mktemp("mtp") / "target"))


@pytest.fixture(scope="module")
def head(model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> DraftHead:
    return heads(model, build_head(tmp_path_factory.mktemp("mtp") / "head"))


@dataclass
class Text:
    """A row: random tokens, and random hidden states where the target would have made some."""

    seed: int
    prompt: int
    tokens: list[int] = field(default_factory=list)
    rows: mx.array = field(default_factory=lambda: mx.zeros((0, HIDDEN)))

    def __post_init__(self) -> None:
        self.numbers = random.Random(self.seed)
        self.grow(self.prompt)

    def grow(self, count: int, tokens: tuple[int, ...] = ()) -> None:
        """`tokens`, and random ones after them."""
        more = [self.numbers.randrange(256) for _ in range(count - len(tokens))]
        self.tokens += [*tokens, *more]
        made = mx.random.normal((count, HIDDEN), key=mx.random.key(self.numbers.randrange(2**30)))
        self.rows = mx.concatenate([self.rows, made])

    def told(self, drafter: HiddenDrafter, *, looked: int = 0, heard: int = 0) -> None:
        """All it does not know yet, in one piece."""
        if not heard:
            drafter.hear(self.tokens[: self.prompt])
            heard = self.prompt
        drafter.hear(self.tokens[heard:])
        if looked < len(self.tokens) - 1:
            drafter.look(self.rows[looked : len(self.tokens) - 1])


def plainly(
    text: Text, model: LoadedModel, sampling: SamplingParams, count: int
) -> tuple[list[int], list[mx.array]]:
    """Proposals, and the logits they were drawn from, each out of the whole text anew."""
    target, draw = target_of(model.network), OwnDraws(sampling, model.vocab_size)
    tokens, rows = text.tokens[1:], text.rows[: len(text.tokens) - 1]
    drawn: list[int] = []
    seen: list[mx.array] = []
    for n in range(count):
        embedded = target.embed(mx.array(tokens + drawn))
        made = hidden_states(head_weights(), embedded, rows)
        seen.append(target.head(made[-1:]))
        drawn.append(int(draw(seen[-1], len(text.tokens) - text.prompt + n)))
        rows = mx.concatenate([rows, made[-1:]])
    return drawn, seen


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize(("prompt", "said"), [(2, 0), (1, 1), (9, 3), (40, 1)])
def test_proposals_are_those_of_the_plain_head(
    model: LoadedModel,
    head: DraftHead,
    monkeypatch: pytest.MonkeyPatch,
    sampling: SamplingParams,
    prompt: int,
    said: int,
) -> None:
    seen: list[mx.array] = []
    whole = target_of(model.network)

    def recorded(hidden: mx.array) -> mx.array:
        seen.append(whole.head(hidden)[:, -1])
        return seen[-1][:, None]

    overheard = Target(layers=[], norm=whole.norm, embed=whole.embed, head=recorded)
    monkeypatch.setattr(load, "target_of", lambda _: overheard)
    text = Text(prompt, prompt)
    text.grow(said)
    drafter = heads(model, head.folder).make(sampling)
    text.told(drafter)
    expected, logits = plainly(text, model, sampling, 4)
    assert drafter.propose(4) == expected
    for ours, theirs in zip(seen, logits, strict=True):
        assert mx.allclose(ours, theirs, rtol=0, atol=2e-5)


@pytest.mark.parametrize("layers", [1, 2])
def test_pieces_of_any_size_are_the_same(model: LoadedModel, tmp_path: Path, layers: int) -> None:
    """Tokens and hidden states, in any order."""
    loud = {n: 10 * a if "o_proj" in n else a for n, a in head_weights(layers).items()}
    head = heads(model, build_head(tmp_path / "head", weights=loud))
    text, numbers = Text(7, 2), random.Random(layers)
    text.grow(38)
    whole = head.make(DRAWN)
    text.told(whole)
    expected = whole.propose(4)
    for _ in range(8):
        drafter, heard, looked = head.make(DRAWN), 2, 0
        drafter.hear(text.tokens[:2])
        while looked < 39 or heard < 40:
            size = numbers.choice([1, 2, 3, 16])
            if looked == 39 or (heard < 40 and numbers.random() < 0.5):
                drafter.hear(text.tokens[heard : heard + size])
                heard = min(heard + size, 40)
            else:
                drafter.look(text.rows[looked : min(looked + size, 39)])
                looked = min(looked + size, 39)
        assert drafter.propose(4) == expected


def test_what_it_made_of_proposals_is_dropped(head: DraftHead) -> None:
    """After any mixture of what came true and what did not, and of asks that led to nothing, it
    proposes what one does that was told all at once."""
    text, numbers = Text(3, 6), random.Random(4)
    one = head.make(DRAWN)
    text.told(one)
    for _ in range(20):
        fresh = head.make(DRAWN)
        text.told(fresh)
        count = numbers.randrange(1, 5)
        proposed = fresh.propose(count)
        assert one.propose(count) == proposed
        if numbers.random() < 0.3:
            continue  # nothing was made of it
        known = len(text.tokens)
        right = tuple(proposed[: numbers.randrange(count + 1)])
        text.grow(len(right) + 1, right)
        text.told(one, looked=known - 1, heard=known)


def test_a_prompt_of_one_token_says_nothing_yet(head: DraftHead) -> None:
    text = Text(1, 1)
    drafter = head.make(GREEDY)
    text.told(drafter)
    assert drafter.propose(2) == []
    text.grow(1)
    text.told(drafter, heard=1)
    assert len(drafter.propose(2)) == 2
