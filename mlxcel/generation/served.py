"""The names and facts of the model that is served."""

from collections.abc import Iterable
from pathlib import Path

from mlxcel.core.ports import ServedModel
from mlxcel.core.status import ModelInfo
from mlxcel.core.window import effective_window
from mlxcel.text.infill import Markers


def served_model(
    *,
    aliases: Iterable[str],
    tags: Iterable[str] = (),
    name: str,
    path: Path | None,
    info: ModelInfo | None,
    markers: Markers,
) -> ServedModel:
    """`name` may be `owner/name`. `path` is None for a model without weights, `info` until the
    worker was ready once."""
    names = tuple(sorted(set(aliases)))
    own = _own_names(name, path)
    return ServedModel(
        id=names[0] if names else own[0],
        names=tuple(dict.fromkeys(names + own)),
        aliases=names,
        tags=tuple(tags),
        family="" if info is None else info.family,
        vocab_size=0 if info is None else info.vocab_size,
        hidden_size=0 if info is None else info.hidden_size,
        train_window=0 if info is None else info.train_window,
        context_window=0 if info is None else info.context_window,
        lacks_fim=markers.lacking,
        fim_words=markers.words,
    )


def slot_window(info: ModelInfo | None) -> int:
    """Tokens a slot holds; 0: unbounded."""
    return 0 if info is None else effective_window(info.context_window, info.train_window)


def _own_names(name: str, path: Path | None) -> tuple[str, ...]:
    """The short name first. A folder of the hub's cache is called by its commit, so the folder's
    name alone would tell nobody anything."""
    folder = () if path is None else (path.name, str(path))
    return (name.rpartition("/")[2], name, *folder)
