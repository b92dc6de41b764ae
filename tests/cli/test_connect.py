"""`mlxcel connect` against a real server: what agents are told, and what becomes of their files."""

import json
import os
import pty
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlxcel.cli.main import main
from mlxcel.connect.agents import AGENTS
from tests.cli.agent_settings import expected
from tests.cli.running import running

KEY = "k-3cret"
LOCKED: dict[str, Any] = {"api_keys": ["other", KEY], "api_prefix": "/llm"}


@pytest.fixture
def url() -> Iterator[str]:
    """A server without a key."""
    with running() as address:
        yield address


@pytest.fixture
def locked() -> Iterator[str]:
    """A server that wants a key, behind a prefix. Never beside the other: Sanic compiles methods
    of its own for the last app of a process alone."""
    with running(**LOCKED) as address:
        yield address


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Somebody who has no agent yet."""
    at = tmp_path / "home"
    at.mkdir()
    monkeypatch.setenv("HOME", str(at))
    names = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG", "CONTINUE_GLOBAL_DIR")
    for name in (*names, "XDG_CONFIG_HOME", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return at


def connect(*words: str) -> int:
    return main(["connect", *words])


def files(folder: Path) -> dict[str, str]:
    every = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in sorted(every)}


def parsed(name: str, text: str) -> Any:
    if name.endswith(".toml"):
        return tomllib.loads(text)
    return yaml.safe_load(text) if name.endswith(("yml", "yaml")) else json.loads(text)


def written(home: Path, name: str) -> Any:
    return parsed(name, (home / name).read_text("utf-8"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("key", [None, KEY], ids=["open", "key"])
def test_an_agent_that_has_no_settings_gets_them(
    agent: str, key: str | None, home: Path, request: pytest.FixtureRequest
) -> None:
    at = request.getfixturevalue("locked" if key else "url")
    words = ["--api-key", key] if key else []
    assert connect(agent, "--url", at, "--write", "--yes", *words) == 0
    found = files(home)
    assert {name: parsed(name, text) for name, text in found.items()} == expected(agent, at, key)
    for name, text in found.items():
        assert text.endswith("}\n" if name.endswith(".json") else "\n")
        assert (mode(home / name) == 0o600) == (KEY in text)


@pytest.mark.parametrize("agent", AGENTS)
def test_what_is_printed_is_what_is_written_and_the_second_time_nothing_is(
    agent: str, url: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert connect(agent, "--url", url) == 0
    assert files(home) == {}
    said = capsys.readouterr()
    assert f"{url} serves tiny, 512 tokens of context" in said.err
    assert "note: 512 tokens are few for an agent" in said.err
    connect(agent, "--url", url, "--write", "--yes")
    before = files(home)
    assert said.out == "".join(f"{text}\n" for text in before.values())
    assert all(f"{home / name}:" in said.err for name in before)
    capsys.readouterr()
    assert connect(agent, "--url", url, "--write") == 0
    assert files(home) == before
    assert capsys.readouterr().out.count("is as it should be") == len(before)


def test_the_rest_of_a_file_stays_and_the_old_one_is_kept(
    url: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / ".config/zed/settings.json"
    file.parent.mkdir(parents=True)
    old = """// Zed settings
{
  "theme": "One Dark", // mine
  "agent": {
    "default_model": { "provider": "zed.dev", "model": "x" },
    "version": "2",
  },
}
"""
    file.write_text(old)
    file.chmod(0o640)
    assert connect("zed", "--url", url, "--write", "--yes") == 0
    new = file.read_text()
    start = old.replace("zed.dev", "mlxcel").replace('"x"', '"tiny"').removesuffix("}\n")
    assert new.startswith(start + '  "language_models": {\n')
    assert mode(file) == 0o640
    copy = file.with_name("settings.json.bak-1")
    assert (copy.read_text(), mode(copy)) == (old, 0o600)
    said = capsys.readouterr()
    assert '-    "default_model": { "provider": "zed.dev", "model": "x" },' in said.out
    assert str(copy) in said.err
    file.write_text(old)
    connect("zed", "--url", url, "--write", "--yes")
    assert file.with_name("settings.json.bak-2").read_text() == old


def test_comments_of_toml_and_yaml_stay(url: str, home: Path) -> None:
    codex = home / ".codex/config.toml"
    codex.parent.mkdir()
    codex.write_text('# mine\nmodel = "gpt"  # old\n\n[mcp_servers.x]\ncommand = "y"\n')
    later = home / ".continue/config.yaml"
    later.parent.mkdir()
    later.write_text('# mine\nname: "Me"\nmodels:\n- name: other  # keep\n  provider: ollama\n')
    for agent in ("codex", "continue"):
        assert connect(agent, "--url", url, "--write", "--yes") == 0
    lines = codex.read_text().splitlines()
    assert lines[:2] == ["# mine", 'model = "tiny"  # old']
    assert {'model_provider = "mlxcel"', "[mcp_servers.x]"} <= set(lines)
    text = later.read_text()
    assert text.startswith('# mine\nname: "Me"\nmodels:\n- name: other  # keep\n')
    settings = yaml.safe_load(text)
    assert [model["name"] for model in settings["models"]] == ["other", "mlxcel"]
    assert "schema" not in settings  # that is for a file of ours


def test_what_a_key_made_necessary_goes_with_it(home: Path) -> None:
    with running(**LOCKED) as url:
        connect("codex", "--url", url, "--write", "--yes", "--api-key", KEY)
    assert written(home, ".codex/config.toml")["model_providers"]["mlxcel"]["env_key"]
    with running() as url:
        connect("codex", "--url", url, "--write", "--yes")
    assert "env_key" not in written(home, ".codex/config.toml")["model_providers"]["mlxcel"]


def test_a_file_with_a_key_becomes_private_and_a_link_stays_one(locked: str, home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o644)
    link = home / ".claude/settings.json"
    link.parent.mkdir()
    link.symlink_to(real)
    assert connect("claude-code", "--url", locked, "--write", "--yes", "--api-key", KEY) == 0
    assert link.is_symlink()
    assert KEY in real.read_text()
    assert mode(real) == 0o600
    assert not list(home.rglob(".*mlxcel-*"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        pytest.param("settings.json", '{"env": {},\n oops}', "line 2 is not JSON", id="broken"),
        pytest.param("settings.json", '{"env": []}', "env is no mapping", id="clash"),
        pytest.param("settings.json", "[]", "no JSON object", id="list"),
        pytest.param("settings.json", b"\xff", "not UTF-8", id="bytes"),
    ],
)
def test_a_file_that_cannot_be_edited_is_left_alone(
    name: str,
    text: str | bytes,
    says: str,
    url: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = home / ".claude" / name
    file.parent.mkdir()
    before = text.encode() if isinstance(text, str) else text
    file.write_bytes(before)
    assert connect("claude-code", "--url", url, "--write", "--yes") == 1
    assert says in capsys.readouterr().err
    assert [path.read_bytes() for path in file.parent.iterdir()] == [before]


def test_settings_of_the_old_form_are_not_hidden(
    url: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".continue").mkdir()
    (home / ".continue/config.json").write_text("{}")
    assert connect("continue", "--url", url, "--write", "--yes") == 1
    assert "migrate" in capsys.readouterr().err
    assert files(home) == {".continue/config.json": "{}"}


def test_variables_say_where_the_files_are(
    url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "a"))
    monkeypatch.setenv("CODEX_HOME", str(home / "b"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "c"))
    (home / "c/opencode").mkdir(parents=True)
    (home / "c/opencode/opencode.jsonc").write_text("{} // mine\n")
    for agent in ("claude-code", "codex", "opencode", "zed"):
        assert connect(agent, "--url", url, "--write", "--yes") == 0
    names = ["a/settings.json", "b/config.toml", "c/opencode/opencode.jsonc"]
    names += ["c/opencode/opencode.jsonc.bak-1", "c/zed/settings.json"]
    assert sorted(files(home)) == names
    assert files(home)[names[2]].endswith("} // mine\n")


# Asking


def test_without_a_terminal_nothing_is_written_unasked(
    url: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert connect("codex", "--url", url, "--write") == 1
    said = capsys.readouterr()
    assert "add --yes" in said.err
    assert "+model = " in said.out
    assert files(home) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1), ("no\n", 1)])
def test_on_a_terminal_the_user_is_asked(answer: str, code: int, url: str, home: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mlxcel", "connect", "codex", "--url", url, "--write"]
    with subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE, text=True) as process:
        os.write(ours, answer.encode())
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(60) == code
    os.close(ours)
    os.close(theirs)
    assert "Write this? [y/N] " in said
    assert bool(files(home)) == (code == 0)


# Which server, and its key


def test_the_configuration_says_where_the_server_is(
    locked: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = locked.rpartition(":")[2].partition("/")[0]
    words = ["--port", port, "--host", "0.0.0.0", "server.api_prefix=/llm"]
    assert connect("codex", *words, f"server.api_keys=[{KEY}]") == 0
    assert f'base_url = "{locked}/v1"' in capsys.readouterr().out


def test_a_server_with_our_own_certificate_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    words = [*make.split(), *names, "-out", str(cert), "-keyout", str(key)]
    subprocess.run(words, check=True, capture_output=True)
    files = {"cert": str(cert), "key": str(key)}
    with running(tls=files) as url:
        port = url.rpartition(":")[2]
        flags = ["--ssl-cert-file", str(cert), "--ssl-key-file", str(key)]
        assert connect("codex", "--port", port, *flags) == 0
        assert f'base_url = "https://127.0.0.1:{port}/v1"' in capsys.readouterr().out
        assert connect("codex", "--url", url) == 1
        assert f"the certificate of {url} is not trusted: self" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["{}/", "{}/v1", "{}/v1/"])
def test_the_address_may_be_that_of_the_api(
    form: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in (form.format(url), form.format(url).removeprefix("http://")):
        assert connect("codex", "--url", asked) == 0
        assert f'base_url = "{url}/v1"' in capsys.readouterr().out


def test_the_key_may_come_from_a_variable_or_a_file(
    locked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text(f"# mine\n{KEY}\n")
    assert connect("codex", "--url", locked) == 1
    assert connect("codex", "--url", locked, "--api-key-file", str(tmp_path / "keys")) == 0
    monkeypatch.setenv("MLXCEL_API_KEY", "wrong")
    assert connect("codex", "--url", locked, "--api-key", KEY) == 0  # said last, and closer
    monkeypatch.setenv("MLXCEL_API_KEY", KEY)
    assert connect("codex", "--url", locked) == 0


def test_another_server_is_not_told_the_keys_of_ours(
    locked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"# @package _global_\nserver:\n  api_keys: [{KEY}]\n")
    assert connect("codex", "--url", locked, "--recipe", str(recipe)) == 1
    assert "wants a key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["--port", "1"], "no server answers at http://127.0.0.1:1 (", id="nobody"),
        pytest.param(["--port", "0"], "say which one it is with --url", id="any-port"),
        pytest.param(["--host", "/tmp/x.sock"], "is a Unix socket", id="socket"),
        pytest.param(["--url", "ftp://x"], "is no address like http", id="scheme"),
        pytest.param(["--url", "http://u:p@x"], "leave out what is not", id="user"),
        pytest.param(["--url", "http://x/v1?a=b"], "leave out what is not", id="query"),
    ],
)
def test_why_there_is_no_server(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert connect("codex", *words) == 1
    assert says in capsys.readouterr().err


def test_why_a_server_does_not_answer(locked: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = locked.removesuffix("/llm")
    for words, says in [
        ([locked], f"{locked} wants a key: give --api-key"),
        ([locked, "--api-key", "wrong"], f"{locked} does not know the key"),
        ([root, "--api-key", KEY], f"{root} has no /v1/models"),
    ]:
        assert connect("codex", "--url", *words) == 1
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param([], "needs one agent", id="none"),
        pytest.param(["zed", "aider"], "needs one agent", id="two"),
        pytest.param(["claud-code"], "did you mean claude-code?", id="typo"),
        pytest.param(["zed", "--yes"], "does nothing without --write", id="yes"),
    ],
)
def test_usage(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert connect(*words) == 2
    assert says in capsys.readouterr().err
