"""From a worker's share of the plan to a worker that is ready."""

from typing import Any

from mlxcel.core.factory import load_factory
from mlxcel.core.status import ModelInfo
from mlxcel.link.messages import PartSpec, WorkerSpec
from mlxcel.worker.base import Progress, Worker


def build(spec: WorkerSpec, progress: Progress) -> tuple[Worker, ModelInfo]:
    """Builds the parts in order, then the worker that takes them."""
    parts = build_parts(spec.parts, progress)
    worker: Worker = load_factory(spec.factory)(spec.options)
    return worker, worker.setup(parts, progress)


def build_parts(specs: list[PartSpec], progress: Progress) -> dict[str, Any]:
    """What the parts provide, by port name."""
    ports: dict[str, Any] = {}
    for spec in specs:
        factory = load_factory(spec.factory)
        part = factory(spec.options, progress, **{need: ports[need] for need in spec.needs})
        ports.update(dict.fromkeys(spec.provides, part))
    return ports
