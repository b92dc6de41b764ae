"""Factories named in a configuration, as `package.module:Name`. Only our own code is started by
name from a file (trap H11)."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from mlxcel.core.errors import StartupError

PREFIX = "mlxcel."


def load_factory(name: str) -> Callable[..., Any]:
    """Raises StartupError for one that is not ours or cannot be imported."""
    module, _, attribute = name.partition(":")
    if not module.startswith(PREFIX):
        raise StartupError(f"the factory {name!r} does not start with {PREFIX!r}")
    try:
        factory: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise StartupError(f"the factory {name!r} cannot be imported: {error}") from error
    return factory
