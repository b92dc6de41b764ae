"""From the composed tree to the plan: the steps every command that needs a plan takes."""

from collections.abc import Callable
from functools import partial

from mlxcel.config.asked import Composed
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.provenance import sources
from mlxcel.config.validate import validate
from mlxcel.graph.compile import compile_plan
from mlxcel.graph.resolve import resolve
from mlxcel.graph.spec import Plan
from mlxcel.store.progress import Progress


def make_plan(
    composed: Composed,
    *,
    offline_only: bool = False,
    progress: Progress,
    before_model: Callable[[Plan], None] | None = None,
) -> Plan:
    """Raises ConfigErrors with all problems (exit code 2), or StartupError (1) when the model
    cannot be had.

    What is wrong without knowing the model is said before hours of downloading it;
    `before_model` gets the plan as far as it is known then, to look for more.
    """
    if problems := validate(composed):
        raise ConfigErrors(problems)
    first = compile_plan(composed.tree, None, composed.choices, partial(sources, composed))
    if before_model is not None:
        before_model(first)
    resolved = resolve(composed, offline_only=offline_only, progress=progress)
    known = resolved.composed
    return compile_plan(resolved.tree, resolved.card, known.choices, partial(sources, known))
