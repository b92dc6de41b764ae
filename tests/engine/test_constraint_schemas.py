"""Random answers to random schemas: whatever is finished validates, whatever is refused says
which keyword is to blame, and nothing gets stuck."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from mlxcel.core.byte_vocab import END, EOS, VOCAB_SIZE
from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.steering import Constraint
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.engine.constraint.matcher import Matcher
from mlxcel.generation.structured import compiled
from tests.engine.schemas import KINDS, Case, schemas

COUNT = 300
LONGEST = 400
CLOSERS = (*b'"]}', EOS, END)


@pytest.fixture(scope="module")
def compiler(tiny: Path) -> Compiler:
    return Compiler(tiny / "tokenizer.json", VOCAB_SIZE)


def grammar_of(case: Case) -> str:
    source = json.dumps(case.schema)
    return compiled(OutputFormat(kind=OutputKind.JSON_SCHEMA, source=source))


def taken(cases: list[Case]) -> Iterator[tuple[Case, str]]:
    for case in cases:
        try:
            yield case, grammar_of(case)
        except BadField:
            continue


def walk(matcher: Matcher, rng: random.Random) -> str | None:
    """A random answer; None when it did not end. Closing something is preferred now and then,
    since a string of random bytes is long."""
    said = bytearray()
    for _ in range(LONGEST):
        if matcher.is_complete:
            return said.decode()
        words = matcher.allowed()
        ids = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
        closers = [token for token in ids if token in CLOSERS]
        token = rng.choice(closers if closers and rng.random() < 0.3 else ids)
        matcher.accept(token)
        if token not in (EOS, END):
            said.append(token)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_finished_answer_validates(seed: int, compiler: Compiler) -> None:
    finished = 0
    for case, grammar in taken(schemas(COUNT, seed)):
        matcher = compiler.matcher(Constraint(grammar=grammar), (EOS, END))
        text = walk(matcher, random.Random(case.name))
        if text is None:
            continue
        finished += 1
        kind = jsonschema.validators.validator_for(
            case.schema, default=jsonschema.Draft202012Validator
        )
        kind(case.schema).validate(json.loads(text))
    assert finished > COUNT // 2


REFUSED = [pytest.param(case, id=case.name) for case in schemas(COUNT) if case.refused]


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_keyword_is_named(case: Case) -> None:
    with pytest.raises(BadField) as error:
        grammar_of(case)
    assert error.value.message.startswith(f"response_format: {case.refused} at #/properties/p: ")


def test_most_schemas_are_taken() -> None:
    cases = [case for case in schemas(COUNT) if case.refused is None]
    assert len(list(taken(cases))) > 0.9 * len(cases)


def test_every_kind_of_schema_is_there() -> None:
    assert {case.name.partition("-")[2] for case in schemas(COUNT)} == KINDS.keys()
    assert schemas(COUNT, 1) == schemas(COUNT, 1)
