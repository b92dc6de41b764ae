"""`mlxcel serve`: compose, check, resolve, compile, run."""

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
    progress = progress_for(observability["progress"])
    plan = make_plan(composed, progress=progress, before_model=_check_listener)
    _tell(plan)
    return _serve(plan)


def _serve(plan: Plan) -> int:
    import uvloop

    from mlxcel.config.settings import SettingsStore
    from mlxcel.graph.runtime import Runtime

    settings = SettingsStore.from_tree(plan.tree)

    async def main() -> int:
        runtime = Runtime(
            plan,
            workers=plan.tree["workers"],
            drain_s=plan.tree["server"]["drain_secs"],
            ambient={"settings": settings},
        )
        return await runtime.run()

    code: int = uvloop.run(main())
    return code


def _check_listener(plan: Plan) -> None:
    """A taken port or a bad key file is said before a model is downloaded."""
    from mlxcel.core.factory import load_factory

    server = plan.nodes["server"]
    load_factory(server.factory).preflight(server.options)  # type: ignore[attr-defined]


def _tell(plan: Plan) -> None:
    import logging

    from mlxcel.graph.render import clamp_text

    log = logging.getLogger("mlxcel.plan")
    for clamp in plan.clamps:
        log.info("%s", clamp_text(clamp))
    for warning in plan.warnings:
        log.warning("%s", warning)
