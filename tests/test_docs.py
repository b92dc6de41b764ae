"""The docs say what is so: generated pages are fresh, links lead somewhere, keys exist, and a
command that is shown with its output prints exactly that."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generate import PAGES, REFERENCE, rendered
from mlxcel.cli.main import main
from mlxcel.config.schema import every_key

ROOT = Path(__file__).resolve().parent.parent
PROSE = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("news/*.md")])
SECTIONS = {key.split(".")[0] for key in every_key()}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    text = path.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def sessions() -> Iterator[tuple[str, str, str]]:
    """File, command and output of everything in a `console` block."""
    for path in PROSE:
        for block in blocks(path, "console"):
            for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = session.partition("\n")
                yield name(path), command, output


def commands() -> Iterator[str]:
    """Every call of the program in an `sh` block that names no file of the reader's own."""
    for path in PROSE:
        for line in "\n".join(blocks(path, "sh")).splitlines():
            if re.match(r"(\w+=\S+ )*mlxcel( |$)", line) and "./" not in line:
                yield line


SESSIONS = list(sessions())
COMMANDS = sorted(set(commands()))
RECIPES = [
    block for path in PROSE for block in blocks(path, "yaml") if block.startswith("# @package")
]


@pytest.fixture(autouse=True)
def _stranger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Somebody whose home and working folder are empty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def arguments(command: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words after `mlxcel`; variables before it are set."""
    words = shlex.split(command, comments=True)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    assert words.pop(0) == "mlxcel"
    return words


@pytest.mark.parametrize("page", PAGES)
def test_reference_page_is_what_make_docs_writes(page: str) -> None:
    written = (REFERENCE / page).read_text("utf-8")
    assert written == rendered(page), "run `make docs`"


@pytest.mark.parametrize("path", PROSE, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
    local = [link for link in links if "://" not in link]
    assert not [link for link in local if not (path.parent / link).exists()]


@pytest.mark.parametrize("path", PROSE, ids=name)
def test_keys_that_are_named_exist(path: Path) -> None:
    words = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:=[^`]*)?`", path.read_text("utf-8"))
    keys = {word for word in words if word.split(".")[0] in SECTIONS}
    files = {key for key in keys if (ROOT / "mlxcel" / key.replace(".", "/")).exists()}
    assert not keys - every_key() - files


@pytest.mark.parametrize("path", PROSE, ids=name)
def test_make_targets_that_are_named_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text("utf-8"), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize(("command", "output"), [session[1:] for session in SESSIONS])
def test_command_prints_what_is_shown(
    command: str,
    output: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main(arguments(command, monkeypatch))
    printed = capsys.readouterr()
    assert (printed.out + printed.err).strip() == output.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_command_that_is_shown_makes_a_tree(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["config", *arguments(command, monkeypatch)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_that_is_shown_makes_a_tree(
    recipe: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(recipe, "utf-8")
    assert main(["config", "--recipe", str(file)]) == 0, capsys.readouterr().err


def test_the_picture_is_the_plan_of_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    main(["graph", "--format", "mermaid", "--offline"])
    assert blocks(ROOT / "docs" / "graph.md", "mermaid") == [capsys.readouterr().out]


def test_there_are_examples_to_check() -> None:
    assert {"README.md", "docs/config.md", "docs/graph.md"} <= {session[0] for session in SESSIONS}
    assert COMMANDS
    assert RECIPES
