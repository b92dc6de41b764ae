"""How a generated page is written."""

from collections.abc import Iterable, Iterator, Sequence

HEAD = "<!-- Written by `make docs` from {source}; do not edit. -->\n"


def top(title: str, source: str) -> Iterator[str]:
    yield HEAD.format(source=source)
    yield f"# {title}\n"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _line(titles)
    yield _line(["---"] * len(titles))
    yield from (_line([cell.replace("|", "\\|") for cell in row]) for row in rows)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")
