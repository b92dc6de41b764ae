"""Rules of a grammar as a graph: knots, depth, and how often a knot names its own rules."""

import pytest

from mlxcel.generation.rule_graph import Uses, entangled, knots, levels


@pytest.mark.parametrize(
    ("uses", "found", "deep", "most"),
    [
        pytest.param({"r": ""}, ["r"], 1, 0, id="alone"),
        pytest.param({"r": "rr"}, ["r"], 1, 2, id="itself"),
        pytest.param(
            {"r": "ab", "a": "c", "b": "c", "c": ""}, ["c", "a", "b", "r"], 3, 0, id="dag"
        ),
        pytest.param({"r": "a", "a": "bc", "b": "ar", "c": ""}, ["c", "abr"], 4, 2, id="circle"),
        pytest.param(
            {"r": "a", "a": "ab", "b": "cbb", "c": "b"}, ["bc", "a", "r"], 4, 3, id="two-circles"
        ),
        pytest.param({"r": "a", "a": "", "x": "r"}, ["a", "r"], 2, 0, id="unused"),
    ],
)
def test_knots_come_from_below(uses: Uses, found: list[str], deep: int, most: int) -> None:
    """Rules are letters here."""
    assert ["".join(sorted(knot)) for knot in knots("r", uses)] == found
    assert levels("r", uses, dict.fromkeys(uses, 1)) == deep
    assert entangled("r", uses)[1] == most


def test_a_rule_weighs_what_lies_within_it() -> None:
    assert levels("r", {"r": "ab", "a": "", "b": ""}, {"r": 2, "a": 5, "b": 3}) == 7


def test_a_long_chain_needs_no_stack() -> None:
    uses = {str(n): [str(n + 1)] for n in range(50_000)} | {"50000": ["0"]}
    assert levels("0", uses, dict.fromkeys(uses, 1)) == 50_001
