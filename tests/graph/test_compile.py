from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.compile import PlanRefused, compile_plan
from mlxcel.graph.rules import Finding, Settled, Tree
from mlxcel.graph.spec import Clamp, Edge, Plan


def section(
    name: str, worker: str, *, ports: Mapping[str, list[str]] | None = None, **options: Any
) -> dict[str, Any]:
    node = {"name": name, "factory": f"mlxcel.x:{name}", "worker": worker, **(ports or {})}
    return {**options, "node": node}


def tree(**more: Any) -> dict[str, Any]:
    """A server, a text node and a chat worker with one part, the users declared first."""
    return {
        "web": section("server", "front", ports={"wants": ["generate"]}),
        "text": section("text", "front", ports={"needs": ["chat"], "provides": ["generate"]}),
        "run": section("chat", "chat", ports={"needs": ["model"], "provides": ["chat"]}),
        "weights": section("model", "chat", ports={"provides": ["model"]}, bits=4),
        "scheduler": {"parallel": 4},
        **more,
    }


def compiled(asked: dict[str, Any], *rules: Any) -> Plan:
    return compile_plan(asked, None, {"weights": "tiny"}, dict, rules)


def problems_of(asked: dict[str, Any], *rules: Any) -> list[Problem]:
    with pytest.raises(PlanRefused) as refused:
        compiled(asked, *rules)
    return refused.value.problems


def test_nodes_are_the_sections_with_a_node_block() -> None:
    plan = compiled(tree())
    assert sorted(plan.nodes) == ["chat", "model", "server", "text"]
    model = plan.nodes["model"]
    assert (model.choice, model.factory, model.options) == ("tiny", "mlxcel.x:model", {"bits": 4})
    assert not model.is_worker
    assert plan.nodes["chat"].is_worker


def test_order_puts_providers_before_their_users() -> None:
    assert compiled(tree()).order == ("model", "chat", "text", "server")


def test_edges_say_what_is_required() -> None:
    assert set(compiled(tree()).edges) == {
        Edge(user="chat", port="model", provider="model", required=True),
        Edge(user="text", port="chat", provider="chat", required=True),
        Edge(user="server", port="generate", provider="text", required=False),
    }


def test_a_need_that_the_runtime_brings_makes_no_edge() -> None:
    asked = tree()
    asked["web"]["node"]["needs"] = ["settings", "statuses"]
    assert compiled(asked).edges == compiled(tree()).edges


def test_a_want_nobody_provides_makes_no_edge() -> None:
    asked = tree()
    del asked["text"]
    plan = compiled(asked)
    assert [edge.user for edge in plan.edges] == ["chat"]
    assert "server" in plan.order


def test_parts_of_a_worker_come_in_order() -> None:
    asked = tree(tool=section("cache", "chat", ports={"needs": ["model"]}))
    assert [part.name for part in compiled(asked).parts_of("chat")] == ["model", "cache"]


def test_taken_keys_become_options() -> None:
    asked = tree()
    asked["run"]["node"]["takes"] = {"rows": "scheduler.parallel", "weights": "weights"}
    assert compiled(asked).nodes["chat"].options == {"rows": 4, "weights": {"bits": 4}}


def one_row(tree: Tree, card: Card | None) -> Iterator[Finding]:
    yield Clamp(key="scheduler.parallel", asked=4, used=1, reason="one row")


def two_rows(tree: Tree, card: Card | None) -> Iterator[Finding]:
    yield Settled(key="scheduler.parallel", used=2)


def says_rows(tree: Tree, card: Card | None) -> Iterator[Finding]:
    yield f"{tree['scheduler']['parallel']} rows"


def refuses_rows(tree: Tree, card: Card | None) -> Iterator[Finding]:
    yield Problem(key="scheduler.parallel", value=4, rule="is too many")


def test_clamp_rewrites_what_options_and_later_rules_see() -> None:
    asked = tree()
    asked["run"]["node"]["takes"] = {"rows": "scheduler.parallel"}
    plan = compiled(asked, one_row, says_rows)
    assert plan.nodes["chat"].options == {"rows": 1}
    assert [clamp.used for clamp in plan.clamps] == [1]
    assert plan.tree["scheduler"]["parallel"] == 1
    assert plan.warnings == ("1 rows",)
    assert asked["scheduler"]["parallel"] == 4


def test_settled_value_is_no_news() -> None:
    plan = compiled(tree(), two_rows, says_rows)
    assert (plan.clamps, plan.warnings) == ((), ("2 rows",))


def test_same_tree_gives_the_same_plan() -> None:
    assert compiled(tree(), one_row) == compiled(tree(), one_row)


def broken(key: str, value: object, base: dict[str, Any] | None = None) -> dict[str, Any]:
    """A tree with one entry of a node block replaced."""
    asked = tree() if base is None else base
    name, _, entry = key.partition(".")
    asked[name]["node"][entry] = value
    return asked


@pytest.mark.parametrize(
    ("asked", "key", "words"),
    [
        pytest.param(
            broken("run.factory", "os:system"),
            "run.node.factory",
            "has to start with mlxcel.",
            id="foreign-factory",
        ),
        pytest.param(
            broken("run.takes", {"rows": "scheduler.rows"}),
            "run.node.takes.rows",
            "is no key of the tree",
            id="takes-nothing",
        ),
        pytest.param(
            broken("weights.name", "text"), "weights.node.name", "another node", id="name-twice"
        ),
        pytest.param(
            tree(more=section("other", "chat", ports={"provides": ["model"]})),
            "other.provides",
            "is provided by model and by other",
            id="two-providers",
        ),
        pytest.param(
            broken("text.provides", ["generate", "settings"]),
            "text.provides",
            "is provided by the runtime and by text",
            id="what-the-runtime-brings",
        ),
        pytest.param(
            broken("weights.provides", []),
            "chat.needs",
            "is provided by nothing",
            id="missing-need",
        ),
        pytest.param(
            broken("weights.worker", "nobody"), "model.worker", "is no worker", id="unknown-worker"
        ),
        pytest.param(
            broken("text.needs", ["chat", "model"]),
            "text.model",
            "the front uses workers only",
            id="front-uses-a-part",
        ),
        pytest.param(
            broken("weights.needs", ["chat"]), "model.chat", "cannot reach", id="part-uses-worker"
        ),
        pytest.param(
            tree(side=section("side", "side", ports={"needs": ["chat"]})),
            "side.chat",
            "cannot reach",
            id="worker-uses-worker",
        ),
        pytest.param(
            broken("run.needs", ["model", "generate"]),
            "chat.generate",
            "cannot reach",
            id="worker-uses-front",
        ),
        pytest.param(
            broken(
                "text.needs",
                ["chat", "extra"],
                tree(
                    more=section(
                        "extra", "front", ports={"needs": ["generate"], "provides": ["extra"]}
                    )
                ),
            ),
            "plan",
            "text, extra wait for each other",
            id="cycle",
        ),
    ],
)
def test_plan_is_refused(asked: dict[str, Any], key: str, words: str) -> None:
    assert any(p.key == key and words in p.rule for p in problems_of(asked))


def test_missing_need_names_the_group_that_supplies_it() -> None:
    (problem,) = problems_of(broken("weights.provides", []))
    assert "the group model supplies it" in problem.hint


def test_every_problem_is_collected() -> None:
    asked = broken("run.factory", "os:system", broken("weights.provides", []))
    keys = {problem.key for problem in problems_of(asked, refuses_rows)}
    assert keys == {"scheduler.parallel", "run.node.factory", "chat.needs"}


def test_problem_says_where_the_value_was_set() -> None:
    where = {"scheduler.parallel": "recipes/laptop.yaml:4"}
    with pytest.raises(PlanRefused, match=r"is too many +recipes/laptop\.yaml:4"):
        compile_plan(tree(), None, {}, lambda: where, [refuses_rows])


def test_sources_are_not_looked_up_for_a_sound_plan() -> None:
    def costly() -> dict[str, str]:
        raise AssertionError("looked up")

    assert compile_plan(tree(), None, {}, costly, []).order
