"""`mlxcel graph`: what would run, without starting it."""

from collections.abc import Mapping
from typing import Any

from mlxcel.config.asked import Asked
from mlxcel.graph.spec import Plan


def run(asked: Asked, options: Mapping[str, Any]) -> int:
    """`options`: `format` is text, mermaid or json; `offline` leaves out any download.

    Raises ConfigErrors (PlanRefused among them) and StartupError.
    """
    from mlxcel.config.compose import compose
    from mlxcel.graph.plan import make_plan
    from mlxcel.store.progress import progress_for

    composed = compose(asked)
    progress = progress_for(composed.tree["observability"]["progress"])
    plan = make_plan(composed, offline_only=options["offline"], progress=progress)
    print(_rendered(plan, options["format"]))
    return 0


def _rendered(plan: Plan, form: str) -> str:
    from mlxcel.config.schema import secrets
    from mlxcel.graph import render

    match form:
        case "mermaid":
            return render.mermaid(plan)
        case "json":
            return render.as_json(plan, {key.rpartition(".")[2] for key in secrets()})
        case _:
            return render.text(plan)
