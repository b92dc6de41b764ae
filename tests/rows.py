"""Tables of hundreds of rows in one test: a test of its own costs each row ten times its check."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Check = Callable[..., None]


def every(
    names: str, rows: Iterable[Any], ids: Callable[[Any], str] = str
) -> Callable[[Check], Check]:
    """Like `parametrize`, for checks that leave nothing behind: all rows are tried, and all that
    fail are told. Fixtures are made once."""
    given = names.split(",")
    table = list(rows)
    assert table, "no rows"

    def decorate(check: Check) -> Check:
        @functools.wraps(check)
        def tried(**fixtures: Any) -> None:
            failed = []
            for row in table:
                values = (row,) if len(given) == 1 else row
                try:
                    check(**fixtures, **dict(zip(given, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(f"{ids(row)}: {type(error).__name__}: {error}")
            assert not failed, f"{len(failed)} of {len(table)} rows:\n" + "\n".join(failed)

        taken = inspect.signature(check)
        left = [one for name, one in taken.parameters.items() if name not in given]
        tried.__signature__ = taken.replace(parameters=left)  # type: ignore[attr-defined]
        return tried

    return decorate
