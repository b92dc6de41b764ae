"""The compiled plan: plain data that says what will run, and why it differs from what was asked.

Knows nothing of how a node is built; a factory is a string.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlxcel.core.card import Card

FRONT = "front"
AMBIENT = ("settings", "statuses")
"""Ports that no node provides: the runtime brings them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One thing that will run. `worker` is "front", the node's own name (it is a worker), or
    the name of the worker it is a part of."""

    name: str
    section: str
    """Where the tree describes it."""
    choice: str
    """The option chosen in its group, for display: `smollm2`."""
    factory: str
    """`package.module:Name`; the prefix `mlxcel.` is enforced."""
    worker: str
    needs: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_worker(self) -> bool:
        return self.worker == self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`user` takes `port` from `provider`."""

    user: str
    port: str
    provider: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamp:
    """A value that was asked for and is not what runs."""

    key: str
    asked: object
    used: object
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will run. `order` lists node names so that providers come before their users."""

    nodes: Mapping[str, NodeSpec]
    edges: tuple[Edge, ...]
    order: tuple[str, ...]
    tree: Mapping[str, Any]
    """The tree as it runs: what the model added and the rules rewrote is in it."""
    card: Card | None = None
    """None: the model was not looked at."""
    clamps: tuple[Clamp, ...] = ()
    warnings: tuple[str, ...] = ()

    def parts_of(self, worker: str) -> tuple[NodeSpec, ...]:
        """The parts a worker builds, in order."""
        nodes = (self.nodes[name] for name in self.order)
        return tuple(n for n in nodes if n.worker == worker and not n.is_worker)
