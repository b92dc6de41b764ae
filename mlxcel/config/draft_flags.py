"""What flags of drafting mean beside each other; `conf/flags.yaml` says what each means alone."""

from collections.abc import Sequence

from mlxcel.config.argv import Found, Line, chosen_groups
from mlxcel.core.problem import Problem

CHOICE = "@draft"
PATH = "draft.path"
WIDTH = "draft.max_draft"
MOST = "draft.n_max"


def settled(winners: Sequence[Found], line: Line) -> list[Found]:
    """Those that count."""
    by_key = {item.row.key: item for item in winners}
    word = chosen_groups(line.overrides).get("draft")
    flag = by_key.get(CHOICE)
    kind = word if word is not None else None if flag is None else flag.value
    chooser = f"draft={word}" if flag is None or word is not None else flag.spelling
    if kind == "none":
        return _without(winners, [k for k in by_key if k.startswith("draft.")], chooser, line)
    if kind == "prompt_lookup" and (path := by_key.get(PATH)) is not None:
        # A variable may be set for good, for the days on which another kind is asked for.
        is_meant = path.on_line or (flag is not None and not flag.on_line and word is None)
        if is_meant:
            line.problems.append(_drafter_for_nothing(path, chooser))
        return [item for item in winners if item is not path]
    width, most = by_key.get(WIDTH), by_key.get(MOST)
    if width is None or most is None:
        return list(winners)
    weaker, beats = (width, most) if most.on_line and not width.on_line else (most, width)
    return _without(winners, [weaker.row.key], beats.spelling, line)


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
