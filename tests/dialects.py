"""docs/dialects.md as data: what stands under a heading, name by name."""

import re
from functools import cache
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "dialects.md"
VERDICTS = frozenset({"same", "different", "no effect", "refused", "only here"})
HAS = frozenset({"same", "different", "only here"})
"""What an answer that has the field says."""


def table(heading: str, column: int = 0) -> dict[str, str]:
    """The names of a column with the verdict beside them."""
    found: dict[str, str] = {}
    for cells in rows(heading):
        for name in re.findall(r"`([^`]+)`", cells[column]):
            assert name not in found, f"{name} stands twice under {heading}"
            found[name] = cells[column + 1]
    return found


def rows(heading: str) -> list[list[str]]:
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def headings() -> list[str]:
    return re.findall(r"^#{2,3} (.+)$", _text(), re.MULTILINE)


def section(heading: str) -> str:
    found = re.search(
        rf"^#{{2,3}} {re.escape(heading)}$\n(.*?)(?=^#|\Z)", _text(), re.DOTALL | re.MULTILINE
    )
    assert found, f"docs/dialects.md has no heading {heading}"
    return found[1]


@cache
def _text() -> str:
    return PAGE.read_text("utf-8")
