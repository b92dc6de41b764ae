"""From a chat body to the loop guard and the budget of thinking."""

from typing import Any

import pytest

from mlxcel.core.errors import BadField, BadRequest
from mlxcel.core.steering import LoopGuard
from tests.protocols.openai.reading import chat_read

BUDGET = "thinking_budget_tokens"
ALIASES = (BUDGET, "reasoning_budget_tokens", "thinking_token_budget", "thinking_budget")


def budget(**fields: Any) -> int | None:
    return chat_read(**fields).request.thinking_budget


@pytest.mark.parametrize(
    ("sent", "guard"),
    [
        pytest.param({}, None, id="absent"),
        pytest.param({"max_pattern_size": None}, None, id="null"),
        pytest.param(
            {"min_pattern_size": 2, "max_pattern_size": 20, "min_count": 4},
            LoopGuard(shortest=2, longest=20, count=4),
            id="all",
        ),
        pytest.param(
            {"min_pattern_size": 0, "max_pattern_size": 20, "min_count": 4},
            LoopGuard(shortest=1, longest=20, count=4),
            id="zero-counts-as-one",
        ),
        pytest.param(
            {"max_pattern_size": 20}, LoopGuard(shortest=1, longest=20, count=0), id="no-count"
        ),
        pytest.param({"min_count": 4}, LoopGuard(shortest=1, longest=0, count=4), id="no-longest"),
        pytest.param(
            {"max_pattern_size": 0}, LoopGuard(shortest=1, longest=0, count=0), id="switched-off"
        ),
        pytest.param(
            {"max_pattern_size": 2**60, "min_count": 2**60},
            LoopGuard(shortest=1, longest=2**31 - 1, count=2**31 - 1),
            id="huge",
        ),
    ],
)
def test_one_loop_field_lays_the_guard_of_the_server_aside(
    sent: dict[str, Any], guard: LoopGuard | None
) -> None:
    assert chat_read(**sent).request.loop == guard


def test_only_a_whole_guard_is_on() -> None:
    whole = chat_read(max_pattern_size=20, min_count=2).request.loop
    assert whole is not None
    assert whole.is_on
    for sent in (
        {"max_pattern_size": 20},
        {"min_count": 4},
        {"max_pattern_size": 5, "min_count": 1},
    ):
        guard = chat_read(**sent).request.loop
        assert guard is not None
        assert not guard.is_on


@pytest.mark.parametrize("name", ["min_pattern_size", "max_pattern_size", "min_count"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param(-1, "wants a value of at least 0, got -1", id="negative"),
        pytest.param("x", 'wants an integer, got string "x"', id="word"),
        pytest.param(4.0, "wants an integer, got number 4.0", id="float"),
    ],
)
def test_a_loop_field_that_cannot_be_used_is_named(name: str, value: Any, says: str) -> None:
    with pytest.raises(BadField, match=says) as caught:
        chat_read(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize("value", [-1, 0, 1, 512])
def test_a_budget_under_any_of_its_names(name: str, value: int) -> None:
    assert budget(**{name: value}) == value


@pytest.mark.parametrize(
    ("sent", "used"),
    [
        pytest.param({}, None, id="absent"),
        pytest.param(dict.fromkeys(ALIASES), None, id="null"),
        pytest.param({BUDGET: 1, "thinking_token_budget": 2, "thinking_budget": 3}, 1, id="first"),
        pytest.param({"thinking_token_budget": 2, "thinking_budget": 3}, 2, id="second"),
        pytest.param({"reasoning_budget_tokens": 1, "thinking_budget": 3}, 1, id="alias-first"),
        pytest.param({BUDGET: None, "thinking_budget": 3}, 3, id="null-is-absent"),
        pytest.param({BUDGET: 0, "thinking_budget": 3}, 0, id="zero-is-there"),
        pytest.param({BUDGET: -1, "thinking_budget": -7}, -1, id="later-ones-are-not-checked"),
        pytest.param({BUDGET: 7, "max_tokens": 7}, 7, id="all-of-max-tokens"),
        pytest.param({BUDGET: 0, "max_tokens": 0}, 0, id="nothing-of-nothing"),
        pytest.param({BUDGET: -1, "max_tokens": 0}, -1, id="no-cap-over-nothing"),
    ],
)
def test_the_first_budget_counts(sent: dict[str, Any], used: int | None) -> None:
    assert budget(**sent) == used


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize(
    ("sent", "value", "message"),
    [
        pytest.param({}, -2, "thinking_budget_tokens must be >= -1 (-1: no cap), got -2", id="low"),
        pytest.param(
            {"max_tokens": 50},
            51,
            "thinking_budget_tokens (51) must be <= max_tokens (50)",
            id="over-the-request",
        ),
        pytest.param(
            {},
            513,
            "thinking_budget_tokens (513) must be <= max_tokens (512)",
            id="over-the-settings",
        ),
        pytest.param(
            {"max_tokens": 900, "max_completion_tokens": 5},
            6,
            "thinking_budget_tokens (6) must be <= max_tokens (5)",
            id="over-the-newer-name",
        ),
    ],
)
def test_a_budget_out_of_bounds_is_refused(
    name: str, sent: dict[str, Any], value: int, message: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        budget(**sent, **{name: value})
    alias = "" if name == BUDGET else f"; it was sent as {name}"
    assert (caught.value.message, caught.value.param) == (message + alias, name)


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize("value", [1.0, "1", True, []], ids=["float", "string", "boolean", "array"])
def test_a_budget_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadField, match=f"{name}: wants an integer") as caught:
        budget(**{name: value})
    assert caught.value.param == name


def test_two_spellings_of_the_budget_are_refused() -> None:
    with pytest.raises(BadField, match="another spelling of thinking_budget_tokens"):
        budget(thinking_budget_tokens=1, reasoning_budget_tokens=1)
