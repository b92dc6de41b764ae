"""The handlers that route rows may name."""

import inspect
import pkgutil
from importlib import import_module

from mlxcel.http.generate import generate
from mlxcel.http.routes import GENERATE, Handler


def find_handlers() -> dict[str, Handler]:
    """`generate`, and as `module.function` every public coroutine function of this folder."""
    found: dict[str, Handler] = {GENERATE: generate}
    for info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{info.name}")
        for name, value in vars(module).items():
            is_own = getattr(value, "__module__", None) == module.__name__
            if is_own and inspect.iscoroutinefunction(value) and not name.startswith("_"):
                found[f"{info.name}.{name}"] = value
    return found
