"""From the composed tree to the plan: the steps every command that needs a plan takes."""

from collections.abc import Callable

from mlxcel.config.asked import Composed
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.provenance import sources
from mlxcel.config.validate import validate
from mlxcel.graph.compile import compile_plan
from mlxcel.graph.resolve import Resolved, resolve
from mlxcel.graph.spec import Plan

Progress = Callable[[str, float | None], None]
"""What is being done, and how far it is (0..1, or None when that is unknown)."""


def make_plan(
    composed: Composed, *, offline_only: bool = False, progress: Progress
) -> tuple[Plan, Resolved]:
    """Raises ConfigErrors with all problems (exit code 2), or StartupError (1) when the model
    cannot be had.

    What is wrong without knowing the model is said before hours of downloading it.
    """
    if problems := validate(composed):
        raise ConfigErrors(problems)
    compile_plan(composed.tree, None, composed.choices, lambda: sources(composed))
    resolved = resolve(composed, offline_only=offline_only, progress=progress)
    plan = compile_plan(resolved.tree, resolved.card, resolved.choices, lambda: sources(composed))
    return plan, resolved
