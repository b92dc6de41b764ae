"""The model, and the engine that runs it."""

from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.problem import Problem
from mlxcel.graph.rules.finding import Finding, Tree


def model_named(tree: Tree, card: Card | None) -> Iterator[Finding]:
    model = tree["model"]
    if model["kind"] == "mlx" and model["path"] is None and model["source"] is None:
        yield Problem(
            key="model.path",
            value=None,
            rule="needs a model: a folder, owner/name, or a name of mlx-community",
            hint="mlxcel --model NAME",
        )


def engine_fits_model(tree: Tree, card: Card | None) -> Iterator[Finding]:
    engine, model = read(tree, "engine.kind"), read(tree, "model.kind")
    if engine != model:
        yield Problem(
            key="engine.kind",
            value=engine,
            rule=f"cannot run a model of the kind {model}",
            hint=f"engine={model}, or another model",
        )


def adapters_have_weights(tree: Tree, card: Card | None) -> Iterator[Finding]:
    adapters = read(tree, "model.lora.adapters")
    if adapters and read(tree, "model.kind") == "echo":
        yield Problem(
            key="model.lora.adapters",
            value=[adapter["path"] for adapter in adapters],
            rule="cannot be applied: a scripted model has no weights",
            hint="leave them out, or choose another model",
        )


def worker_placement(tree: Tree, card: Card | None) -> Iterator[Finding]:
    placement = read(tree, "workers.placement")
    if placement != "process":
        yield f"workers.placement={placement}: a crash of the worker takes the server along"
