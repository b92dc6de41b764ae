"""What flags of drafting mean beside each other; `conf/flags.yaml` says what each means alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxcel.config.argv import Found, Line, chosen_groups
from mlxcel.core.problem import Problem

GROUP = "draft"
PATH = "draft.path"
WIDTH = "draft.max_draft"
MOST = "draft.n_max"


@dataclass(frozen=True, slots=True)
class Chosen:
    kind: str
    by: str
    on_line: bool


def settled(winners: Sequence[Found], line: Line) -> list[Found]:
    """Those that count."""
    by_key = {item.row.key: item for item in winners}
    chosen = _chosen(by_key.get(f"@{GROUP}"), line)
    if chosen is not None and chosen.kind == "none":
        keys = [key for key in by_key if key.startswith(f"{GROUP}.")]
        return _without(winners, keys, chosen.by, line)
    path = by_key.get(PATH)
    if chosen is not None and chosen.kind == "prompt_lookup" and path is not None:
        # A variable may be set for good, for the days on which another kind is asked for.
        if path.on_line or not chosen.on_line:
            line.problems.append(_drafter_for_nothing(path, chosen.by))
        return [item for item in winners if item is not path]
    width, most = by_key.get(WIDTH), by_key.get(MOST)
    if width is None or most is None:
        return list(winners)
    weaker, beats = (width, most) if most.on_line and not width.on_line else (most, width)
    return _without(winners, [weaker.row.key], beats.spelling, line)


def _chosen(flag: Found | None, line: Line) -> Chosen | None:
    """The kind that is chosen by name."""
    word = chosen_groups(line.overrides).get(GROUP)
    if word is not None:
        return Chosen(word, f"draft={word}", on_line=True)
    if flag is None:
        return None
    kind = str(flag.value)
    return Chosen(kind, f"{flag.spelling} (draft={kind})", flag.on_line)


def _without(winners: Sequence[Found], keys: Sequence[str], why: str, line: Line) -> list[Found]:
    """A flag that is passed over is told of; a variable may be set for good."""
    gone = [item for item in winners if item.row.key in keys]
    line.warnings += [
        f"{item.spelling} has no effect: {why} beats it" for item in gone if item.on_line
    ]
    return [item for item in winners if item not in gone]


def _drafter_for_nothing(path: Found, chooser: str) -> Problem:
    return Problem(
        key=path.spelling,
        value=path.value,
        rule=f"names a drafter, but {chooser} proposes from the context and reads none",
        hint="leave one of them out; without a kind it is found by the drafter",
        source=path.source,
    )
