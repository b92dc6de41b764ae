"""Where configuration is looked for."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlxcel.config.paths import data_dir, missing_dirs, user_dirs


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("conf", "config.yaml"),
        ("recipes", "laptop.yaml"),
        ("schemas", "tree.schema.json"),
    ],
)
def test_our_folders_hold_our_files(kind: Any, file: str) -> None:
    assert (data_dir(kind) / file).is_file()


def test_named_folders_come_before_the_variable_and_the_default(tmp_path: Path) -> None:
    asked, variable, home = tmp_path / "a", tmp_path / "b", tmp_path / "home"
    default = home / ".config" / "mlxcel"
    for folder in (asked, variable, default):
        folder.mkdir(parents=True)
    environ = {"MLXCEL_CONFIG_DIR": str(variable), "HOME": str(home)}
    assert user_dirs([asked], environ) == (asked, variable, default)


def test_xdg_takes_the_place_of_dot_config(tmp_path: Path) -> None:
    (tmp_path / "xdg" / "mlxcel").mkdir(parents=True)
    (tmp_path / ".config" / "mlxcel").mkdir(parents=True)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path)}
    assert user_dirs([], environ) == (tmp_path / "xdg" / "mlxcel",)


def test_tilde_is_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert user_dirs([Path("~/mine")], {"HOME": str(tmp_path)}) == (tmp_path / "mine",)


def test_one_folder_named_twice_counts_once(tmp_path: Path) -> None:
    assert user_dirs([tmp_path, tmp_path], {}) == (tmp_path,)


def test_named_folder_that_is_not_there_is_told_but_not_the_default(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "MLXCEL_CONFIG_DIR": str(tmp_path / "gone")}
    assert missing_dirs([], environ) == (tmp_path / "gone",)


@pytest.mark.parametrize("module", ["mlxcel.config.paths", "mlxcel.config.compose"])
def test_import_pulls_in_nothing_heavy(module: str) -> None:
    heavy = "{'hydra', 'omegaconf', 'jsonschema', 'mlx', 'sanic'}"
    script = f"import sys, {module}; print({heavy} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
