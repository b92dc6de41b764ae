"""From a worker's share of the plan to a worker that is ready."""

import importlib
from collections.abc import Callable
from typing import Any

from mlxcel.core.errors import StartupError
from mlxcel.core.status import ModelInfo
from mlxcel.link.messages import PartSpec, WorkerSpec
from mlxcel.worker.base import Progress, Worker

PREFIX = "mlxcel."


def build(spec: WorkerSpec, progress: Progress) -> tuple[Worker, ModelInfo]:
    """Builds the parts in order, then the worker that takes them."""
    parts = build_parts(spec.parts, progress)
    worker: Worker = find_factory(spec.factory)(spec.options)
    return worker, worker.setup(parts, progress)


def build_parts(specs: list[PartSpec], progress: Progress) -> dict[str, Any]:
    """What the parts provide, by port name."""
    ports: dict[str, Any] = {}
    for spec in specs:
        factory = find_factory(spec.factory)
        part = factory(spec.options, progress, **{need: ports[need] for need in spec.needs})
        ports.update(dict.fromkeys(spec.provides, part))
    return ports


def find_factory(name: str) -> Callable[..., Any]:
    """Imports `package.module:Name`. A configuration must not run whatever is importable."""
    module, _, attribute = name.partition(":")
    if not module.startswith(PREFIX):
        raise StartupError(f"the factory {name!r} does not start with {PREFIX!r}")
    try:
        factory: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise StartupError(f"the factory {name!r} cannot be imported: {error}") from error
    return factory
