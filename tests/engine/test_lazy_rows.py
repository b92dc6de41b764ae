"""Lazy grammars through the worker: rows that are free until a trigger comes."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.byte_vocab import END, EOS
from mlxcel.core.events import FinishReason
from mlxcel.core.steering import Constraint, Thinking, Trigger
from tests.engine.driver import Driver, submit
from tests.engine.test_steered_rows import serve
from tests.tiny.counting import CLOSE, THINK, build_counting_checkpoint

ENDS = (EOS, END)
SAMPLED = {"temperature": 1.0, "top_p": 0.95, "seed": 7}


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_counting_checkpoint(tmp_path_factory.mktemp("counting") / "tiny-counting")


def run(folder: Path, constraint: Constraint | None, text: bytes = b"x", **options: Any) -> Driver:
    driver = Driver(folder)
    other = submit("other", list(b"A"), 10)
    serve(driver, other, submit("t", list(text), 12, eos=ENDS, constraint=constraint, **options))
    assert bytes(driver.tokens("other")) == b"BCDEFGHIJK"
    return driver


FROM_E = Constraint(grammar='start: "cde" "#" /[0-9]/', triggers=(Trigger(pattern="cde"),))
FROM_TOKEN = Constraint(grammar='start: "e" "#" /[0-9]/', triggers=(Trigger(tokens=(ord("e"),)),))


@pytest.mark.parametrize("constraint", [FROM_E, FROM_TOKEN], ids=["text", "token"])
@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_a_row_is_bound_from_its_trigger_on(
    counting: Path, constraint: Constraint, sampling: dict[str, Any]
) -> None:
    driver = run(counting, constraint, b"`", **sampling)
    said = bytes(driver.tokens("t"))
    assert said[:6] == b"abcde#"
    assert said[6:].isdigit()
    assert len(said) == 7
    assert driver.reason("t") is FinishReason.STRUCTURE


def test_a_row_whose_trigger_never_comes_may_end(counting: Path) -> None:
    driver = run(counting, FROM_E, b"*")  # + , - . and the end
    assert bytes(driver.tokens("t")) == b"+,-."
    assert driver.reason("t") is FinishReason.EOS


def test_a_grammar_that_is_broken_fails_no_request(counting: Path) -> None:
    broken = Constraint(grammar='start: "x"', triggers=(Trigger(pattern="cd"),))
    driver = run(counting, broken, b"`")
    assert bytes(driver.tokens("t")) == b"abcdefghijkl"
    assert driver.reason("t") is FinishReason.LENGTH


def test_triggers_are_heard_after_the_block_alone(counting: Path) -> None:
    block = Thinking(open_ids=(THINK,), close_ids=(CLOSE,), budget=3)
    constraint = Constraint(
        grammar='start: /[A-Z]/ "#"', triggers=(Trigger(pattern="[bB]"),), after_thinking=True
    )
    driver = run(counting, constraint, b"x?", thinking=block)
    assert driver.tokens("t") == [THINK, *b"abc", CLOSE, *b"AB#"]


def test_each_choice_has_a_trigger_of_its_own(counting: Path) -> None:
    driver = run(counting, FROM_E, b"`", choices=2)
    for choice in range(2):
        assert bytes(driver.tokens("t", choice))[:6] == b"abcde#"


def test_a_preempted_row_goes_on_listening_where_it_was(counting: Path) -> None:
    driver = Driver(counting, parallel=1, preemption="longest-first")
    row = submit("t", list(b"`"), 12, eos=ENDS, constraint=FROM_E, lane=2)
    driver.tick(row)
    for _ in range(1000):
        if len(driver.tokens("t")) >= 4:
            break
        driver.tick()
    driver.run(submit("urgent", list(b"A"), 10, lane=0))
    assert driver.stats.preemptions == 1
    assert bytes(driver.tokens("urgent")) == b"BCDEFGHIJK"
    assert bytes(driver.tokens("t"))[:6] == b"abcde#"
    assert len(driver.tokens("t")) == 7
