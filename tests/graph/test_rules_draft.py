"""Rules of speculative decoding."""

from typing import Any

import pytest

from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.rules import Settled
from mlxcel.graph.rules import draft as rules
from mlxcel.graph.rules.finding import Finding, Rule
from mlxcel.graph.spec import Clamp
from tests.graph.sound_tree import card_of, tree


def found(
    rule: Rule, draft: dict[str, Any], card: Card | None = None, **values: Any
) -> list[Finding]:
    return list(rule({**tree(**values), "draft": draft}, card))


LOOKUP = {"kind": "prompt_lookup", "ngram_min": 2, "ngram_max": 3}


@pytest.mark.parametrize(
    ("draft", "settled"),
    [
        pytest.param({"max_draft": 7, "n_max": None}, {}, id="nobody-bounds-it"),
        pytest.param({"max_draft": 7, "n_max": 3}, {"draft.max_draft": 3}, id="fewer"),
        pytest.param({"max_draft": 7, "n_max": 16}, {"draft.max_draft": 7}, id="more"),
        pytest.param({"block_size": None, "n_max": 3}, {"draft.block_size": 4}, id="block"),
        pytest.param({"block_size": 16, "n_max": 3}, {"draft.block_size": 4}, id="smaller-block"),
        pytest.param({"block_size": 3, "n_max": 8}, {"draft.block_size": 3}, id="larger-block"),
        pytest.param({"block_size": 8, "n_max": None}, {}, id="block-alone"),
        pytest.param({}, {}, id="none"),
    ],
)
def test_what_is_proposed_is_bounded(draft: dict[str, Any], settled: dict[str, int]) -> None:
    made = found(rules.draft_width, {"kind": "any", **draft})
    assert {item.key: item.used for item in made if isinstance(item, Settled)} == settled
    assert len(made) == len(settled)


@pytest.mark.parametrize("kind", ["prompt_lookup", "full_model"])
def test_a_kv_budget_switches_off_what_takes_kv_ahead(kind: str) -> None:
    draft = {**LOOKUP, "kind": kind}
    clamp, node = found(rules.draft_fits, draft, cache__kv_budget=1000)
    assert isinstance(clamp, Clamp)
    assert (clamp.key, clamp.asked, clamp.used) == ("draft.kind", kind, "none")
    assert node == Settled(key="draft.node", used=None)
    assert found(rules.draft_fits, draft, cache__kv_budget="auto") == []


@pytest.mark.parametrize("kind", ["dflash", "mtp"])
def test_heads_stay_beside_a_kv_budget(kind: str) -> None:
    assert found(rules.draft_fits, {"kind": kind, "path": None}, cache__kv_budget=1000) == []


def test_ngrams_are_in_order() -> None:
    [problem] = found(rules.draft_fits, {**LOOKUP, "ngram_max": 1})
    assert isinstance(problem, Problem)
    assert problem.key == "draft.ngram_max"


@pytest.mark.parametrize(
    ("draft", "count"),
    [
        pytest.param({"kind": "none"}, 0, id="none"),
        pytest.param({"kind": "auto", "path": None}, 0, id="open"),
        pytest.param({"kind": "auto", "path": "d"}, 1, id="named"),
        pytest.param({"kind": "mtp", "path": None}, 1, id="mtp"),
    ],
)
def test_a_script_has_nobody_to_draft_for(draft: dict[str, Any], count: int) -> None:
    assert len(found(rules.draft_fits, draft, engine__kind="echo")) == count


def test_a_drafter_that_was_not_seen_is_told_of() -> None:
    draft = {"kind": "auto", "path": "owner/none"}
    [warning] = found(rules.draft_found, draft, card_of())
    assert "owner/none" in str(warning)
    assert found(rules.draft_found, draft) == []
    assert found(rules.draft_found, {"kind": "mtp", "path": "x"}, card_of()) == []
