import json

import pytest

from mlxcel.cli.main import main


def graph(*words: str) -> int:
    return main(["graph", *words])


def test_text_shows_worker_front_and_clamps(capsys: pytest.CaptureFixture[str]) -> None:
    assert graph("model=echo", "engine.window=1024", "limits.ctx_size=8192") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["chat", "text", "server", "clamp"]
    assert "limits.ctx_size 8192 -> 4096" in lines[-1]


def test_offline_shows_the_parts_of_a_model_that_is_not_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert graph("--offline", "--model", "owner/none") == 0
    part = capsys.readouterr().out.splitlines()[1]
    assert part.split()[1:] == [
        "model", "default", "load_model", "owner/none", "precision", "auto",
    ]  # fmt: skip


def test_mermaid_has_a_box_per_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert graph("model=echo", "--format", "mermaid") == 0
    out = capsys.readouterr().out
    assert out.startswith("flowchart")
    assert out.count("subgraph") == 2


def test_json_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    assert graph("model=echo", "--format", "json", "server.api_keys=[s3cret]") == 0
    out = capsys.readouterr().out
    assert "s3cret" not in out
    assert json.loads(out)["nodes"]["server"]["options"]["api_keys"] == "[redacted]"


def test_refused_plan_prints_every_problem_and_exits_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert graph("model=default", "server.api_prefix=x", "engine=echo") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for words in ("model.path", "server.api_prefix = x", "engine.kind = echo", "command line"):
        assert words in captured.err


def test_model_that_cannot_be_had_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert graph("--model", "/none/x") == 1
    assert "/none/x: there is no such folder" in capsys.readouterr().err
