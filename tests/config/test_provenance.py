"""Each value knows where it was set."""

from pathlib import Path

import pytest

from mlxcel.cli import config
from mlxcel.config.asked import Asked, Composed, Origin, Setting
from mlxcel.config.compose import compose
from mlxcel.config.keys import leaves
from mlxcel.config.problems import ConfigErrors
from mlxcel.config.provenance import Place, _Known, places, source_of, sources

ROOT = Path(__file__).parents[2]


def line_of(file: str, text: str) -> str:
    lines = (ROOT / file).read_text().splitlines()
    return f"{file}:{1 + next(i for i, line in enumerate(lines) if line.startswith(text))}"


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Composed:
    folder = tmp_path_factory.mktemp("site")
    recipe = folder / "site.yaml"
    recipe.write_text("server:\n  drain_secs: 5\n  cors: {}\n")
    (folder / "limits").mkdir()
    (folder / "limits" / "mine.yaml").write_text(
        "ctx_size: 0\nhttp_timeout_secs: 1\nbody_bytes: 16384\nwebsocket_secs: 0\n"
    )
    return compose(
        Asked(
            overrides=("limits=mine", "live.decode={timeout_seconds: 9}", "recipes=laptop"),
            values=(
                Setting(
                    key="live.sampling.top_k", value=1, origin=Origin.ENVIRONMENT, name="TOP_K"
                ),
                Setting(key="server.port", value=1, origin=Origin.COMMAND_LINE, name="--port"),
            ),
            recipes=(str(recipe),),
            config_dirs=(folder,),
        )
    )


@pytest.fixture(scope="module")
def found(composed: Composed) -> dict[str, Place]:
    return places(composed)


@pytest.mark.parametrize(
    ("key", "where"),
    [
        pytest.param("server.host", line_of("conf/server/default.yaml", "host:"), id="conf"),
        pytest.param("server.cors.origins", line_of("conf/server/default.yaml", "  or"), id="deep"),
        pytest.param("model.path", line_of("conf/model/_base.yaml", "path:"), id="fragment"),
        pytest.param(
            "model.source.kind", line_of("conf/model/smollm2.yaml", "  kind:"), id="over-null"
        ),
        pytest.param(
            "routes.rows.models.handler",
            line_of("conf/routes/rows/openai.yaml", "  handler: models.show"),
            id="row",
        ),
        pytest.param(
            "scheduler.parallel", line_of("recipes/laptop.yaml", "  parallel:"), id="recipe"
        ),
        pytest.param(
            "live.decode.timeout_seconds",
            "command line: live.decode={timeout_seconds: 9}",
            id="word",
        ),
        pytest.param("server.port", "command line: --port", id="flag"),
        pytest.param("live.sampling.top_k", "environment: TOP_K", id="variable"),
    ],
)
def test_source_of_each_kind(found: dict[str, Place], key: str, where: str) -> None:
    assert found[key].text == where


def test_files_of_the_user_are_named_in_full(found: dict[str, Place]) -> None:
    assert found["server.drain_secs"].text.endswith("site.yaml:2")
    assert found["limits.body_bytes"].text.endswith("limits/mine.yaml:3")


def test_every_leaf_has_a_source(composed: Composed) -> None:
    assert dict(leaves(composed.tree)).keys() == sources(composed).keys()


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        pytest.param("server.host", Origin.OURS, id="conf"),
        pytest.param("scheduler.parallel", Origin.FILES, id="our-recipe"),
        pytest.param("server.drain_secs", Origin.FILES, id="own-recipe"),
        pytest.param("limits.body_bytes", Origin.FILES, id="own-folder"),
        pytest.param("live.sampling.top_k", Origin.ENVIRONMENT, id="variable"),
        pytest.param("server.port", Origin.COMMAND_LINE, id="flag"),
        pytest.param("live.decode.timeout_seconds", Origin.COMMAND_LINE, id="word"),
    ],
)
def test_origin_of_each_kind(found: dict[str, Place], key: str, origin: Origin) -> None:
    assert found[key].origin is origin


def test_leaf_takes_the_place_of_what_is_below_it_and_of_what_it_is_below() -> None:
    known, place = _Known(), Place(origin=Origin.FILES, text="f:1")
    for key in ("a.b.c", "a.b.d", "a.e", "a.b"):
        known.put(key, place)
    assert [*known.places] == ["a.e", "a.b"]
    known.put("a.b.c.f", place)
    known.put("a", place, is_weak=True)
    known.put("z", place, is_weak=True)
    assert [*known.places] == ["a.e", "a.b.c.f", "z"]
    known.put("a", place)
    assert [*known.places] == ["z", "a"]


def test_key_without_a_line_of_its_own_has_that_of_its_section() -> None:
    found = {"a.b": "f:1", "a.c.d": "f:2"}
    assert source_of(found, "a.b[0].x") == "f:1"
    assert source_of(found, "a.c") == "f:2"
    assert source_of(found, "z") == ""


def run(capsys: pytest.CaptureFixture[str], words: list[str], *overrides: str) -> str:
    assert config.run(Asked(overrides=overrides), words) == 0
    return capsys.readouterr().out


def test_config_prints_a_tree_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, [], "server.api_keys=[sesame]", "model.hf_token=sesame")
    assert "sesame" not in out
    assert out.count("[redacted]") == 2
    assert "port: 8080" in out
    assert "factory" not in out


def test_explain_shows_value_rule_unit_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, ["explain", "limits.ctx_size"], "limits.ctx_size=4096")
    assert out.splitlines() == [
        "limits.ctx_size = 4096",
        "  Context over all slots, divided among them; 0: the model's own window in each.",
        "  rule    an integer, at least 0, in tokens",
        "  source  command line: limits.ctx_size=4096",
    ]


def test_explain_takes_sections_and_hides_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, ["explain", "live.sampling", "server"], "server.api_keys=[sesame]")
    assert "live.sampling.top_p = 0.95" in out
    assert "server.api_keys = [redacted]" in out
    assert "sesame" not in out


def test_explain_covers_every_key_with_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, ["explain"])
    assert out.count("\n  rule ") == out.count("\n  source ") == out.count(" = ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        pytest.param(["explain", "server.prot"], "did you mean server.port?", id="key"),
        pytest.param(["explian"], "mlxcel config explain", id="command"),
    ],
)
def test_explain_names_the_nearest(words: list[str], hint: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        config.run(Asked(), words)
    assert hint in caught.value.message


def test_config_refuses_a_wrong_tree() -> None:
    with pytest.raises(ConfigErrors, match=r"server\.port = 70000"):
        config.run(Asked(overrides=("server.port=70000",)), [])
