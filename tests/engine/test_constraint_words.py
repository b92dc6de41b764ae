"""A form that holds the words of special tokens: they are said as text."""

from pathlib import Path

import pytest

from mlxcel.core.byte_vocab import EOS
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.steering import Constraint
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.generation.structured import compiled
from mlxcel.text.tokenizer import read_text_model
from tests.tiny.checkpoint import build_tiny_checkpoint

WORD = "<tool_call>"


@pytest.mark.parametrize(
    ("kind", "source", "text"),
    [
        pytest.param(OutputKind.GBNF, f'root ::= "{WORD}" "a"', f"{WORD}a", id="grammar"),
        pytest.param(OutputKind.GBNF, 'root ::= "<" "tool_call" ">"', WORD, id="in-pieces"),
        pytest.param(
            OutputKind.JSON_SCHEMA, f'{{"const": "a{WORD}"}}', f'"a{WORD}"', id="constant"
        ),
        pytest.param(
            OutputKind.JSON_SCHEMA,
            f'{{"type": "object", "properties": {{"{WORD}": {{"const": 1}}}}, '
            f'"required": ["{WORD}"], "additionalProperties": false}}',
            f'{{"{WORD}":1}}',
            id="name",
        ),
    ],
)
def test_words_of_special_tokens_are_text(
    tmp_path: Path, kind: OutputKind, source: str, text: str
) -> None:
    folder = build_tiny_checkpoint(tmp_path / "tiny", layers=1, hidden=16, markers=(WORD,))
    model = read_text_model(folder)
    compiler = Compiler(folder / "tokenizer.json", model.vocabulary.size)
    grammar = compiled(OutputFormat(kind=kind, source=source, param="x"))
    matcher = compiler.matcher(Constraint(grammar=grammar), (EOS,))
    for byte in text.encode():
        assert matcher.allows(byte), f"not {chr(byte)!r}"
        matcher.accept(byte)
    assert matcher.is_accepting
