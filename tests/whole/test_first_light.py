"""The first minute of a stranger: the server starts and answers."""

import pytest

from tests.whole.program import Program, text_of

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours


def test_echo_answers(echo: Program) -> None:
    answer = echo.chat("hello there")
    assert text_of(answer) == "hello there"
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_smollm2_knows_the_capital_of_france(smollm2: Program) -> None:
    answer = smollm2.chat("What is the capital of France?", max_tokens=20)
    assert "Paris" in text_of(answer)
    assert answer["usage"]["prompt_tokens"] == 37
    assert answer["model"] == "SmolLM2-135M-Instruct"


def test_smollm2_says_how_weights_are_held(smollm2: Program) -> None:
    assert "BLAS" in smollm2.text or "no fast BLAS" in smollm2.text
    assert "float32 (cpu" in smollm2.text or "as stored" in smollm2.text
