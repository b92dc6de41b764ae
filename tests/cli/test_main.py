"""The program's border: help, commands, exit codes."""

import subprocess
import sys

import pytest

from mlxcel import __version__
from mlxcel.cli.main import main, server_main
from mlxcel.config.flag_table import load_table
from mlxcel.core.errors import MlxcelError, StartupError

PROGRAM = [sys.executable, "-m", "mlxcel"]


def test_help_explains_grammar_groups_commands_and_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("usage: mlxcel [command] [flags] [key=value ...]")
    assert "mlxcel model=qwen3 server.port=8080" in page
    for command in load_table().commands:
        assert f"\n  {command} " in page
    assert any(line.split()[:1] == ["model"] and "smollm2*" in line for line in page.splitlines())
    assert any(line.split()[:1] == ["recipes"] and "laptop" in line for line in page.splitlines())
    assert "[server.port; env LLAMA_ARG_PORT]" in page


def test_help_names_every_flag_of_serve(capsys: pytest.CaptureFixture[str]) -> None:
    main(["-h"])
    words = capsys.readouterr().out.replace(",", " ").split()
    for row in load_table().rows("serve"):
        if not row.command:
            assert {*row.flags, *row.negated} <= set(words)


def test_help_says_what_becomes_of_flags_that_cannot_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "--ctx-checkpoints, -ctxcp, --swa-checkpoints VALUE accepted as long as it changes" in text
    )
    assert "--kv-unified, -kvu refused: " in text
    assert "-no-kvu accepted, no effect: " in text


def test_help_fits_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_a_command_has_its_own_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("usage: mlxcel graph [flags]")
    assert "--format text|mermaid|json" in page
    main(["--help"])
    assert "--format text|mermaid|json" not in capsys.readouterr().out


def test_each_front_end_shows_its_primary_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert "  --n-parallel, --parallel, -np N" in capsys.readouterr().out
    server_main(["--help"])
    page = capsys.readouterr().out
    assert "  --parallel, --n-parallel, -np N" in page
    assert page.startswith("usage: mlxcel-server [flags]")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mlxcel {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from mlxcel.cli.main import main; main(['--help']);"
        "heavy = {'hydra', 'omegaconf', 'jsonschema', 'sanic', 'zmq', 'mlx', 'numpy'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == "[]\n"


def test_config_prints_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--port", "9", "model=echo"]) == 0
    out = capsys.readouterr().out
    assert "port: 9" in out
    assert "kind: echo" in out


def test_words_reach_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "explain", "server.port", "--port", "9"]) == 0
    out = capsys.readouterr().out
    assert "server.port = 9" in out
    assert "command line: --port" in out


def test_both_problems_of_the_issue_in_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "server.prot=1", "scheduler.parallel=many"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean server.port?" in captured.err
    assert "scheduler.parallel = many" in captured.err
    assert "command line: server.prot=1" in captured.err


def test_usage_errors_are_exit_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--prot", "1", "--host"]) == 2
    err = capsys.readouterr().err
    assert "did you mean --port?" in err
    assert "--host" in err
    assert "Traceback" not in err


def test_a_bad_variable_is_exit_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "many")
    assert main(["config"]) == 2
    assert "environment: LLAMA_ARG_PORT" in capsys.readouterr().err


def test_warnings_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--decode-timeout", "0"]) == 0
    captured = capsys.readouterr()
    assert "timeout_seconds: 300" in captured.out
    assert captured.err.startswith("mlxcel: warning: --decode-timeout: ")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        pytest.param(StartupError("port 80 is taken"), 1, "mlxcel: port 80 is taken", id="start"),
        pytest.param(MlxcelError("out of luck"), 1, "mlxcel: out of luck", id="any-of-ours"),
        pytest.param(KeyboardInterrupt(), 130, "", id="ctrl-c"),
    ],
)
def test_how_a_command_fails_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("mlxcel.cli.config.run", fail)
    assert main(["config"]) == code
    assert capsys.readouterr().err.strip() == said


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("mlxcel.cli.config.run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["config"])


def test_a_reader_that_leaves_is_no_error() -> None:
    with subprocess.Popen(
        [*PROGRAM, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [*PROGRAM, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"mlxcel {__version__}\n"
