"""EndThinking through the worker, on a model that says the next byte."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.steering import Thinking
from mlxcel.link.messages import EndThinking, RowTokens, Submit
from tests.engine.driver import Driver, submit
from tests.tiny.counting import CLOSE, THINK, build_counting_checkpoint

SAMPLED = {"temperature": 1.0, "top_p": 0.95, "seed": 7}


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_counting_checkpoint(tmp_path_factory.mktemp("counting") / "tiny-counting")


def block(*, may_be_ended: bool = True, is_open: bool = False, message: bytes = b"") -> Thinking:
    return Thinking(
        open_ids=(THINK,),
        close_ids=(CLOSE,),
        message_ids=tuple(message),
        is_open=is_open,
        may_be_ended=may_be_ended,
    )


def asking(name: str, text: bytes = b"x?", tokens: int = 16, **options: Any) -> Submit:
    return submit(name, list(text), tokens, **options)


def until(driver: Driver, name: str, count: int, choice: int = 0) -> None:
    for _ in range(100):
        if len(driver.tokens(name, choice)) >= count:
            return
        driver.tick()
    raise AssertionError(f"{name} has not said {count} tokens")


def after(driver: Driver, name: str, said: int, choice: int = 0) -> tuple[int, list[int]]:
    """How many more tokens were thought after `said` of them, and what came then."""
    tokens = driver.tokens(name, choice)[said:]
    end = tokens.index(CLOSE)
    return end, tokens[end:]


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("lookahead", [True, False], ids=["ahead", "in-step"])
def test_the_next_token_but_one_in_flight_ends_the_block(
    counting: Path, sampling: dict[str, Any], lookahead: bool
) -> None:
    driver = Driver(counting, lookahead=lookahead)
    driver.tick(asking("t", thinking=block(), **sampling), asking("other", **sampling))
    until(driver, "t", 5)
    said = len(driver.tokens("t"))
    driver.tick(EndThinking("t"))
    driver.run()
    more, rest = after(driver, "t", said)
    assert more == 1  # a step is in flight between two ticks
    assert bytes(rest[1:4]) == b"ABC"
    assert CLOSE not in driver.tokens("other")
    assert driver.stats.lookahead_steps > 0 or not lookahead
    forced = [e.ids for e in driver.events("t") if isinstance(e, RowTokens) and e.is_forced]
    assert forced == [[CLOSE]]


def test_rows_that_may_be_ended_run_ahead(counting: Path) -> None:
    runs = []
    for thinking in (None, block()):
        driver = Driver(counting)
        driver.run(asking("t", thinking=thinking))
        runs.append((driver.stats.lookahead_steps, driver.tokens("t")))
    assert runs[0] == runs[1]
    assert runs[0][0] > 0


def test_each_choice_is_ended_with_the_message(counting: Path) -> None:
    driver = Driver(counting)
    driver.tick(asking("t", choices=2, thinking=block(message=b"ok"), **SAMPLED))
    until(driver, "t", 4, choice=1)
    driver.run(EndThinking("t"))
    for choice in range(2):
        tokens = driver.tokens("t", choice)
        assert CLOSE in tokens
        assert bytes(tokens[tokens.index(CLOSE) - 2 : tokens.index(CLOSE)]) == b"ok"


def test_a_request_that_waits_is_ended_where_its_prompt_has_begun_to_think(counting: Path) -> None:
    driver = Driver(counting, parallel=1)
    waiting = asking("w", b"x`", 6, thinking=block(is_open=True))
    driver.tick(asking("busy"), waiting)
    driver.run(EndThinking("w"))
    assert driver.tokens("w") == [CLOSE, *b"ABCDE"]


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        pytest.param(b"xk", block(), id="does-not-think"),
        pytest.param(b"x?", block(may_be_ended=False), id="not-arranged"),
        pytest.param(b"x?", None, id="not-watched"),
    ],
)
def test_nothing_else_is_ended(counting: Path, text: bytes, thinking: Thinking | None) -> None:
    driver = Driver(counting)
    driver.tick(asking("t", text, thinking=thinking))
    until(driver, "t", 4)
    driver.run(EndThinking("t"), EndThinking("nobody"))
    assert CLOSE not in driver.tokens("t")
    assert len(driver.tokens("t")) == 16


def test_a_preempted_row_is_ended_where_it_waits(counting: Path) -> None:
    driver = Driver(counting, parallel=1, preemption="longest-first")
    driver.tick(asking("t", thinking=block(), lane=2))
    until(driver, "t", 4)
    driver.tick(asking("urgent", b"xk", 30, lane=0))
    until(driver, "urgent", 3)
    said = len(driver.tokens("t"))
    driver.run(EndThinking("t"))
    assert driver.stats.preemptions == 1
    assert after(driver, "t", said)[0] == 0
