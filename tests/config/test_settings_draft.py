"""What /v1/settings shows of a drafter (rows 58 to 61)."""

import json
from typing import Any

import pytest

from mlxcel.config.setting_rows import load_rows, shown
from tests.config.live_store import tree

ROWS = {row.name: row for row in load_rows()}
NAMES = ("draft_model_path", "num_draft_tokens", "draft_kind", "draft_block_size")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param((), (None, 3, None, None), id="none"),
        pytest.param(("draft=auto",), (None, 3, None, None), id="not-yet-found"),
        pytest.param(("draft=prompt_lookup",), (None, 7, "prompt-lookup", 7), id="prompt-lookup"),
        pytest.param(
            ("draft=full_model", "draft.path=d", "draft.max_draft=5"),
            ("d", 5, "full-model", 5),
            id="full-model",
        ),
        pytest.param(("draft=dflash", "draft.path=d"), ("d", 3, "dflash", None), id="by-the-file"),
        pytest.param(("draft=mtp", "draft.block_size=4"), (None, 3, "mtp", 4), id="mtp"),
        pytest.param(("draft=mtp", "draft.block_size=6"), (None, 5, "mtp", 6), id="wider"),
    ],
)
def test_rows_of_a_drafter(words: tuple[str, ...], expected: tuple[Any, ...]) -> None:
    rows = list(ROWS.values())
    assert tuple(shown(ROWS[name], tree(*words), rows) for name in NAMES) == expected


def test_the_rest_of_the_section_has_its_own_row() -> None:
    """Without how it is built, whether that is there or has been taken away."""
    for extra in ({}, {"node": None}):
        draft = {**tree("draft=mtp")["draft"], **extra}
        block = json.loads(shown(ROWS["draft"], {"draft": draft}, list(ROWS.values())))
        assert block["adaptive"] is True
        assert not {"node", "path", "kind"} & set(block)
