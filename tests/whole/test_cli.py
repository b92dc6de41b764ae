"""The command line as a process: pages, explanations, graphs, recipes, a user's own folder."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.whole.program import Program, text_of

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

HEAVY = {"hydra", "omegaconf", "jsonschema", "sanic", "zmq", "mlx", "mlx_lm", "numpy", "asyncio"}


def mlxcel(
    *words: str, env: Mapping[str, str] | None = None, python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *python, "-m", "mlxcel", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )


def printed(*words: str, env: Mapping[str, str] | None = None) -> str:
    done = mlxcel(*words, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """A user's own groups and recipes."""
    for name, text in {
        "model/mine.yaml": "defaults: [echo, _self_]\nalias: [my-model]\n",
        "recipes/desk.yaml": "# @package _global_\ndefaults:\n  - override /model: mine\n",
    }.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "own"


def test_help_is_printed_without_any_heavy_import() -> None:
    done = mlxcel("--help", python=("-X", "importtime"))
    assert done.returncode == 0
    assert done.stdout.startswith("usage: mlxcel")
    lines = done.stderr.splitlines()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert {"mlxcel", "yaml"} <= imported
    assert imported & HEAVY == set()


def test_config_explain_names_value_rule_and_source() -> None:
    out = printed("config", "explain", "server.port")
    assert "server.port = 8080" in out
    assert "65535" in out
    assert "conf/server/default.yaml" in out


def test_config_prints_what_a_word_has_changed() -> None:
    out = printed("config", "model=echo", "scheduler.parallel=3")
    assert "parallel: 3" in out


def test_graph_as_text_shows_worker_part_and_clamp(tiny: Path) -> None:
    out = printed("graph", "--model", str(tiny), "limits.ctx_size=999999")
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines] == ["chat", "└─", "text", "server", "cache", "clamp"]
    assert lines[1][1] == "model"
    assert tiny.name in lines[1]
    assert lines[-1][1:4] == ["limits.ctx_size", "999999", "->"]
    assert lines[-1][4].strip(":") == "2048"


def test_graph_as_mermaid() -> None:
    out = printed("graph", "model=echo", "--format", "mermaid")
    assert out.startswith("flowchart")
    assert "chat_node -- chat --> text_node" in out


def test_graph_as_json() -> None:
    plan = json.loads(printed("graph", "model=echo", "--format", "json"))
    assert set(plan["nodes"]) == {"chat", "text", "server"}
    assert set(plan["order"]) == set(plan["nodes"])


def test_recipe_by_name_starts_what_it_says() -> None:
    with Program("recipes=ci") as program:
        assert text_of(program.chat("from a recipe")) == "from a recipe"


def test_recipe_from_a_file(tmp_path: Path) -> None:
    recipe = tmp_path / "desk.yaml"
    recipe.write_text(
        "# @package _global_\n"
        "defaults:\n"
        "  - override /model: echo\n"
        "model:\n"
        "  alias: [desk]\n"
        "scheduler:\n"
        "  parallel: 2\n"
    )
    with Program("--recipe", str(recipe)) as program:
        assert program.get("/v1/models")[1]["data"][0]["id"] == "desk"
        program.await_health(batch__max_batch_size=2)


def test_mistake_in_a_recipe_is_shown_with_its_line(tmp_path: Path) -> None:
    recipe = tmp_path / "wrong.yaml"
    recipe.write_text("# @package _global_\nserver:\n  port: 70000\n")
    done = mlxcel("--recipe", str(recipe))
    assert done.returncode == 2
    assert "server.port = 70000" in done.stderr
    assert "wrong.yaml:3" in done.stderr


@pytest.mark.parametrize("how", ["variable", "flag", "home"])
def test_option_of_the_users_own_folder(how: str, own_folder: Path, tmp_path: Path) -> None:
    words = ["--config-dir", str(own_folder)] if how == "flag" else []
    env = {"MLXCEL_CONFIG_DIR": str(own_folder)} if how == "variable" else {}
    if how == "home":
        env = {"XDG_CONFIG_HOME": str(tmp_path / "home")}
        (tmp_path / "home").mkdir()
        own_folder.rename(tmp_path / "home" / "mlxcel")
    with Program("serve", "model=mine", *words, env=env) as program:
        assert program.get("/v1/models")[1]["data"][0]["id"] == "my-model"


def test_recipe_of_the_users_own_folder(own_folder: Path) -> None:
    out = printed("config", "recipes=desk", env={"MLXCEL_CONFIG_DIR": str(own_folder)})
    assert "- my-model" in out
