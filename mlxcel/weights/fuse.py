"""Projections of the same input as one matrix product: q, k and v; gate and up.

A decode step on a GPU is bound by the number of operations, not by their size (decision 2), and
a product with the rows of three matrices costs no more than one. The modules keep their names and
calls, so the library's models run unchanged: the first of a group that is called computes for
all, the others take their share. The same numbers, up to rounding.
"""

from collections.abc import Iterator, Sequence

import mlx.core as mx
import mlx.nn as nn

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
ROWS = ("weight", "scales", "biases", "bias")
"""Arrays of a linear layer whose first axis is the output."""


class FusedGroup:
    """One product for layers that are called with the same input, one after the other."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._ends = [0]
        for layer in layers:
            self._ends.append(self._ends[-1] + layer["weight"].shape[0])
        self._joint = _joined(layers)
        self._input: mx.array | None = None
        self._shares: dict[int, mx.array] = {}

    def take(self, index: int, x: mx.array) -> mx.array:
        """The output of one layer. Nothing is kept once every layer has taken its own: results
        of a long prompt are large."""
        if self._input is not x or index not in self._shares:
            self._input = x
            self._shares = dict(enumerate(mx.split(self._joint(x), self._ends[1:-1], axis=-1)))
        share = self._shares.pop(index)
        if not self._shares:
            self._input = None
        return share

    @property
    def joint(self) -> nn.Module:
        return self._joint


class FusedProjection(nn.Module):
    """Stands in the place of one layer of a group. The first of a group holds its weights, so
    that they are counted and saved once."""

    def __init__(self, group: FusedGroup, index: int) -> None:
        super().__init__()
        self._group = group
        self._index = index
        if index == 0:
            self.joint = group.joint

    def __call__(self, x: mx.array) -> mx.array:
        return self._group.take(self._index, x)


def fuse_projections(network: nn.Module) -> int:
    """Replaces every group that can be joined; returns how many were."""
    count = 0
    for module in network.modules():
        for names in GROUPS:
            layers = [module.get(name) for name in names]
            if _can_join(layers):
                group = FusedGroup(layers)
                for index, name in enumerate(names):
                    setattr(module, name, FusedProjection(group, index))
                mx.eval(group.joint.parameters())
                count += 1
    return count


def _can_join(layers: Sequence[object]) -> bool:
    """Plain or quantised layers of one kind, with the same shape of input and the same arrays."""
    kinds = {type(layer) for layer in layers}
    if len(kinds) != 1 or not kinds <= {nn.Linear, nn.QuantizedLinear}:
        return False
    facts = {tuple(_facts(layer)) for layer in layers if isinstance(layer, nn.Module)}
    return len(facts) == 1


def _facts(layer: nn.Module) -> Iterator[object]:
    yield layer["weight"].shape[1:]
    yield layer["weight"].dtype
    yield tuple(name for name in ROWS if name in layer)
    yield tuple(getattr(layer, name, None) for name in ("bits", "group_size", "mode"))


def _joined(layers: Sequence[nn.Module]) -> nn.Module:
    first = layers[0]
    joint: nn.Module = first.__class__.__new__(first.__class__)
    nn.Module.__init__(joint)
    for name in ("bits", "group_size", "mode"):
        if hasattr(first, name):
            setattr(joint, name, getattr(first, name))
    for name in ROWS:
        if name in first:
            joint[name] = mx.concatenate([layer[name] for layer in layers], axis=0)
    joint.freeze()
    return joint
