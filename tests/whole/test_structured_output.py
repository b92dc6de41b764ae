"""The form a client asks for holds on a random model: what ends by itself parses and validates,
what cannot be enforced is refused by name, and nothing gets stuck."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from tests.cases.asking import (
    CHAT,
    Streamed,
    assert_error_object,
    assert_serves,
    await_idle,
    opened,
)
from tests.engine.schemas import KINDS, Case, schemas
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.program import Program, chat_body, serve_checkpoint, text_of
from tests.whole.schemas import CLOSERS, assert_valid, json_schema

pytestmark = pytest.mark.slow

Item = TypeVar("Item")
Result = TypeVar("Result")

COUNT = 300
THREADS = 8
WITHIN_S = 120.0
"""For all requests of a test together."""
MAX_TOKENS = 300
SEEDS = 50
REFUSAL = re.compile(r"response_format: (?P<keyword>\S+(?: or \S+)? )?at #\S*: (?P<rule>.+)")
UNSATISFIABLE = "no value can satisfy this schema"
"""The one rule that a schema breaks as a whole, and not by a keyword of its own."""

RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "größe": {"type": "number", "minimum": -2.5, "exclusiveMaximum": 10},
        "tags": {"type": "array", "items": {"enum": ["é", "日本", None, 7]}, "maxItems": 3},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    },
    "required": ["name", "größe", "next"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = build_tiny_checkpoint(tmp_path_factory.mktemp("wide") / "tiny-wide", window=2048)
    with Program(*serve_checkpoint(folder)) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_stays_behind(program: Program) -> Iterator[None]:
    yield
    health = await_idle(program, 5.0)
    assert (health["status"], health["worker"]["restarts"]) == ("ok", 0)
    assert_serves(program)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`refusal` is the error object of what was refused."""

    text: str = ""
    reason: str | None = None
    refusal: Any = None


def asked(program: Program, body: dict[str, Any], *, streamed: bool) -> Answer:
    """A refusal is JSON with status 400 in both forms: before the first byte of a stream."""
    with opened(program, body | {"stream": streamed}) as response:
        status, kind, raw = response.status, response.headers["Content-Type"], response.read()
    if status != 200:
        assert (status, kind) == (400, "application/json"), raw
        return Answer(refusal=json.loads(raw))
    if not streamed:
        answer = json.loads(raw)
        return Answer(text=text_of(answer), reason=answer["choices"][0]["finish_reason"])
    seen = Streamed(lines=tuple(raw.decode().split("\n")))
    assert seen.is_done, seen.payloads[-1]
    (reason,) = seen.reasons
    return Answer(text=seen.text, reason=reason)


def all_of(ask: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Several at once, in the order of the items. Fails the test when that takes too long."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(ask, items, timeout=WITHIN_S))


def random_body(number: int, **fields: Any) -> dict[str, Any]:
    sampling = {"temperature": 1, "seed": number, "logit_bias": CLOSERS}
    return chat_body(f"case {number}", max_tokens=MAX_TOKENS) | sampling | fields


def assert_refused(case: Case, refusal: Any) -> None:
    """As a mistake in `response_format`, with the keyword and its place."""
    assert_error_object(refusal, param="response_format")
    told = REFUSAL.fullmatch(refusal["error"]["message"])
    assert told, refusal
    if told["keyword"] is None:
        assert told["rule"] == UNSATISFIABLE
    if case.refused is not None:
        assert told["keyword"] == f"{case.refused} "


def test_300_schemas_are_kept_or_refused_by_name(program: Program) -> None:
    cases = schemas(COUNT, 0)

    def ask(number: int) -> Answer:
        body = random_body(number, response_format=json_schema(cases[number].schema))
        return asked(program, body, streamed=number % 2 == 1)

    answers = list(zip(cases, all_of(ask, range(COUNT)), strict=True))
    for case, answer in answers:
        if answer.refusal is not None:
            assert_refused(case, answer.refusal)
            continue
        assert case.refused is None, f"{case.name} was not refused"
        if answer.reason == "stop":
            assert_valid(case.schema, answer.text)
        else:
            assert answer.reason == "length"
    ended = [case.name.partition("-")[2] for case, answer in answers if answer.reason == "stop"]
    assert set(ended) == KINDS.keys() - {"unsupported"}
    assert len(ended) > 0.8 * COUNT


def test_50_seeds_of_one_schema_validate(program: Program) -> None:
    def ask(seed: int) -> Answer:
        body = random_body(seed, response_format=json_schema(RECORD, strict=True))
        return asked(program, body, streamed=seed % 2 == 1)

    answers = all_of(ask, range(SEEDS))
    ended = [answer.text for answer in answers if answer.reason == "stop"]
    for text in ended:
        assert_valid(RECORD, text)
    assert len(ended) > 0.8 * SEEDS
    assert len(set(ended)) > 0.8 * len(ended)


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "plain"])
def test_a_seed_gives_its_document_again_beside_others(program: Program, streamed: bool) -> None:
    def ask(seed: int) -> Answer:
        body = random_body(seed, response_format=json_schema(RECORD))
        return asked(program, body, streamed=streamed)

    assert all_of(ask, range(8)) == [ask(seed) for seed in range(8)]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"^\d{3}-[a-f]{2}$", id="digits"),
        pytest.param("^(grün|röd|青)$", id="words"),
        pytest.param(r"^[^\s]{1,3}\.(com|org)$", id="classes"),
        pytest.param("^a?b{2,4}c*$", id="repeats"),
    ],
)
def test_a_pattern_is_matched(program: Program, pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern, "maxLength": 20}

    def ask(seed: int) -> Answer:
        body = random_body(seed, response_format=json_schema(schema))
        return asked(program, body, streamed=seed % 2 == 1)

    for answer in all_of(ask, range(10)):
        assert answer.reason == "stop"
        assert re.fullmatch(pattern, assert_valid(schema, answer.text))


def test_json_object_is_an_object(program: Program) -> None:
    """`response_format: json_object` works; greedy and sampled."""

    def ask(seed: int) -> Answer:
        body = random_body(seed, response_format={"type": "json_object"})
        if seed % 4 == 0:
            body["temperature"] = 0
        return asked(program, body, streamed=seed % 2 == 1)

    answers = all_of(ask, range(20))
    ended = [answer.text for answer in answers if answer.reason == "stop"]
    assert len(ended) > 10
    assert all(isinstance(json.loads(text), dict) for text in ended)
    assert all(answer.text.startswith("{") for answer in answers)


def test_each_of_eight_choices_validates(program: Program) -> None:
    fields = {"n": 8, "response_format": json_schema(RECORD)}
    status, answer = program.post(CHAT, random_body(3, **fields))
    assert status == 200, answer
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == list(range(8))
    ended = [c["message"]["content"] for c in choices if c["finish_reason"] == "stop"]
    for text in ended:
        assert_valid(RECORD, text)
    assert len(set(ended)) > 4


def test_rows_with_and_without_a_schema_share_a_batch(program: Program) -> None:
    """A free answer is what it is alone, and its constrained neighbours are as valid."""

    def free(number: int) -> str:
        return text_of(program.chat(f"free {number}", max_tokens=60))

    def ask(number: int) -> str:
        if number % 2:
            return free(number)
        answer = asked(
            program, random_body(number, response_format=json_schema(RECORD)), streamed=True
        )
        if answer.reason == "stop":
            assert_valid(RECORD, answer.text)
        return ""

    texts = all_of(ask, range(16))
    assert texts[1::2] == [free(number) for number in range(1, 16, 2)]
