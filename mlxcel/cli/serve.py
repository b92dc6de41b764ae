"""`mlxcel serve`: compose, check, resolve, compile, run."""

from collections.abc import Mapping
from typing import Any

from mlxcel.config.asked import Asked
from mlxcel.graph.spec import Plan


def run(asked: Asked) -> int:
    """Serves until a signal. Raises ConfigErrors (exit 2) and StartupError (exit 1)."""
    from mlxcel.cli.logs import set_up_logging
    from mlxcel.config.compose import compose
    from mlxcel.graph.plan import make_plan
    from mlxcel.store.progress import progress_for

    composed = compose(asked)
    observability = composed.tree["observability"]
    set_up_logging(observability["log"])
    plan, resolved = make_plan(composed, progress=progress_for(observability["progress"]))
    _tell(plan)
    return _serve(plan, resolved.tree)


def _serve(plan: Plan, tree: Mapping[str, Any]) -> int:
    import uvloop

    from mlxcel.config.settings import SettingsStore
    from mlxcel.graph.runtime import Runtime

    settings = SettingsStore.from_tree(tree)

    async def main() -> int:
        runtime = Runtime(
            plan,
            workers=tree["workers"],
            drain_s=tree["server"]["drain_secs"],
            ambient={"settings": settings},
        )
        return await runtime.run()

    code: int = uvloop.run(main())
    return code


def _tell(plan: Plan) -> None:
    import logging

    log = logging.getLogger("mlxcel.plan")
    for clamp in plan.clamps:
        log.info("%s %s -> %s: %s", clamp.key, clamp.asked, clamp.used, clamp.reason)
    for warning in plan.warnings:
        log.warning("%s", warning)
