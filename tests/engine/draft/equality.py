"""Whether a drafting engine says at temperature 0 what a plain one says, in batches with rows of
other kinds beside. They may part where the two likeliest tokens are as good as equal: a wide
forward may round otherwise (contract speculative, 5). Nowhere else."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from llguidance import LLMatcher

from mlxcel.core.events import FinishReason, Usage
from mlxcel.core.steering import Constraint, Thinking
from mlxcel.link.messages import Submit, unpack_tokens
from tests.engine.driver import Driver, submit

NEAR = 1e-4
"""Between the two largest logits."""
BATCHES = ["g", "gg", "gs", "gggg", "ggsl", "gp", "gscp", "gt"]
"""Rows of one batch: greedy, sampled, with log-probabilities, penalties, a constraint, a thinking
budget."""


def prompts(numbers: random.Random, words: Sequence[int], longest: int) -> list[int]:
    """Random tokens, mostly with a phrase that comes again."""
    phrase = [numbers.choice(words) for _ in range(numbers.randint(2, 8))]
    text: list[int] = []
    length = numbers.randint(5, longest)
    while len(text) < length:
        one = [numbers.choice(words) for _ in range(numbers.randint(1, 8))]
        text += phrase if numbers.random() < 0.6 else one
    return text[:length]


def kinds(numbers: random.Random) -> dict[str, dict[str, Any]]:
    sampled = {"temperature": 1.0, "seed": numbers.randrange(2**32)}
    grammar = LLMatcher.grammar_from_regex("[a-z]{2,40}")
    thinking = Thinking(open_ids=(60,), close_ids=(62, 10), message_ids=(33,), budget=4)
    return {
        "g": {},
        "s": sampled,
        "l": {"top_logprobs": 2},
        "p": {**sampled, "presence_penalty": 0.6, "repetition_penalty": 1.2},
        "c": {"constraint": Constraint(grammar=grammar)},
        "t": {**sampled, "thinking": thinking},
    }


def batches(
    count: int, words: Sequence[int], *, longest: int, new: int, seed: int = 7
) -> list[list[Submit]]:
    """Until `count` prompts were greedy ones; their rows are named g..."""
    numbers = random.Random(seed)
    made = turn = 0
    work = []
    while made < count:
        how = BATCHES[turn % len(BATCHES)]
        options = kinds(numbers)
        rows = [
            submit(f"{kind}{turn}-{n}", prompts(numbers, words, longest), new, **options[kind])
            for n, kind in enumerate(how)
        ]
        work.append(rows)
        made, turn = made + how.count("g"), turn + 1
    return work


@dataclass(slots=True)
class Tally:
    texts: int = 0
    near: int = 0
    """Greedy texts that parted at a near tie."""
    others: list[str] = field(default_factory=list)
    """Rows of other kinds whose text differs."""
    rounds: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """Of one request."""

    tokens: list[int]
    reason: FinishReason
    usage: Usage


def told(driver: Driver, rows: Sequence[Submit]) -> list[Told]:
    """What a batch is told."""
    driver.frames.clear()
    driver.run(*rows)
    names = [row.id for row in rows]
    return [Told(driver.tokens(n), driver.reason(n), driver.finish(n).usage) for n in names]


def compare(
    plain: Driver,
    drafting: Driver,
    work: Sequence[list[Submit]],
    expected: Sequence[list[Told]] | None = None,
) -> Tally:
    """Fails where greedy texts part at no near tie. `expected`: of `plain`, where it is known."""
    tally = Tally()
    for turn, rows in enumerate(work):
        right = told(plain, rows) if expected is None else expected[turn]
        for row, mine, theirs in zip(rows, told(drafting, rows), right, strict=True):
            is_greedy = row.id.startswith("g")
            tally.texts += is_greedy
            if mine.tokens == theirs.tokens:
                assert mine == theirs
            elif is_greedy:
                prompt = unpack_tokens(row.tokens)
                gap = gap_where_they_part(plain, prompt, mine.tokens, theirs.tokens)
                assert gap < NEAR, f"{row.id}: {mine} instead of {theirs}, gap {gap}"
                tally.near += 1
            else:
                tally.others.append(row.id)
    tally.rounds = drafting.stats.draft_rounds
    tally.accepted = drafting.stats.draft_accepted
    return tally


def gap_where_they_part(
    driver: Driver, prompt: Sequence[int], mine: Sequence[int], theirs: Sequence[int]
) -> float:
    """Between the largest logit and the least likely of the two tokens."""
    pairs = zip(mine, theirs, strict=False)
    place = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
    if place is None:
        return float("inf")  # one ends where the other goes on
    text = [*prompt, *theirs[:place]]
    logits = driver.model.network(mx.array([text]))[0, -1].astype(mx.float32)
    said = mx.minimum(logits[mine[place]], logits[theirs[place]])
    return float((logits.max() - said).item())
