"""The names and facts of the model that is served."""

from collections.abc import Iterable
from pathlib import Path

from mlxcel.core.ports import ServedModel
from mlxcel.core.status import ModelInfo


def served_model(
    *,
    aliases: Iterable[str],
    name: str | None,
    path: Path | None,
    info: ModelInfo | None,
    slot_ctx: int,
) -> ServedModel:
    """`name` may be `owner/name`. `path` is None for the echo model, `info` until the worker was
    ready once."""
    names = tuple(sorted(set(aliases)))
    own = ("echo",) if path is None else _own_names(name or path.name, path)
    return ServedModel(
        id=names[0] if names else own[0],
        names=tuple(dict.fromkeys(names + own)),
        aliases=names,
        family="" if info is None else info.family,
        vocab_size=0 if info is None else info.vocab_size,
        hidden_size=0 if info is None else info.hidden_size,
        train_window=0 if info is None else info.train_window,
        context_window=slot_ctx,
    )


def _own_names(name: str, path: Path) -> tuple[str, ...]:
    """The short name first. A folder of the hub's cache is called by its commit, so the folder's
    name alone would tell nobody anything."""
    return (name.rpartition("/")[2], name, path.name, str(path))


def slot_window(info: ModelInfo | None) -> int:
    """Tokens of prompt and answer together that a slot holds; 0: unbounded."""
    if info is None:
        return 0
    return info.context_window if info.context_window > 0 else info.train_window
