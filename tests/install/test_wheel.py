"""The program as a stranger installs it: the wheel built from the sdist, in an environment of
its own, run from an empty folder."""

import os
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ("conf", "recipes", "schemas")
pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`build` makes the sdist, and the wheel from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    [path] = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment that holds the wheel.

    Its dependencies are those of the running environment, put behind it on the path: a folder
    named in a .pth file is searched, but its own .pth files are not read, so our checkout's
    editable install stays out.
    """
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    words = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    words += ["--no-deps", "--no-index", "--quiet", str(wheel)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return home / "bin"


def run(program: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    return subprocess.run(
        [str(program), *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("folder", DATA)
def test_the_wheel_carries_every_data_file(folder: str, wheel: Path) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".yaml", ".json")]
    expected = {f"mlxcel/_data/{path.relative_to(ROOT).as_posix()}" for path in files}
    assert expected
    assert expected <= set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mlxcel"}


def test_the_sdist_has_what_its_tests_need_and_no_environment(dist: Path) -> None:
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {*DATA, "mlxcel", "tests", "docs", "Makefile", "LICENSE", "README.md"} <= tops
    assert not tops & {".venv", ".cache", ".git"}


def test_the_installed_program_makes_a_plan(scripts: Path, tmp_path: Path) -> None:
    done = run(scripts / "mlxcel", "graph", "recipes=laptop", "--offline", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 slots of 4096 tokens" in done.stdout


def test_the_installed_program_reads_its_own_conf(scripts: Path, tmp_path: Path) -> None:
    done = run(scripts / "mlxcel", "config", "explain", "server.port", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "conf/server/default.yaml" in done.stdout
    assert str(ROOT) not in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["config"]], ids=" ".join)
def test_the_installed_program_answers(words: list[str], scripts: Path, tmp_path: Path) -> None:
    done = run(scripts / "mlxcel", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "server" in done.stdout


def test_the_second_name_is_installed_too(scripts: Path, tmp_path: Path) -> None:
    done = run(scripts / "mlxcel-server", "--version", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mlxcel-server ")


def test_nothing_is_left_where_it_ran(scripts: Path, tmp_path: Path) -> None:
    run(scripts / "mlxcel", "graph", "recipes=laptop", "--offline", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
