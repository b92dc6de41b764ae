"""Flags and variables whose value would silently mean something nobody wants."""

from pathlib import Path

import pytest

from tests.config.reading import parsed, problems, values


@pytest.mark.parametrize(
    ("argv", "env", "key"),
    [
        pytest.param(["--api-key", ""], {}, "--api-key", id="empty"),
        pytest.param(["--api-key="], {}, "--api-key", id="empty-after-equals"),
        pytest.param(["--api-key", ","], {}, "--api-key", id="comma"),
        pytest.param(["--api-key", '""'], {}, "--api-key", id="quotes"),
        pytest.param(["--api-key", "good", "--api-key", ""], {}, "--api-key", id="beside-one"),
        pytest.param([], {"LLAMA_API_KEY": ","}, "LLAMA_API_KEY", id="variable"),
    ],
)
def test_a_source_of_keys_without_a_key_is_refused(
    argv: list[str], env: dict[str, str], key: str
) -> None:
    """Or the server would be open to all, and nobody told."""
    [(found, rule, _)] = problems(*argv, **env)
    assert found == key
    assert rule.startswith("holds no key")


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        pytest.param(b"", "holds no key", id="empty"),
        pytest.param(b"# a note\n\n", "holds no key", id="comments"),
        pytest.param(b"\xff", "cannot be read", id="not-utf-8"),
    ],
)
def test_a_key_file_without_a_key_is_refused(tmp_path: Path, content: bytes, rule: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    for argv, env, key in (
        (["--api-key-file", str(file)], {}, "--api-key-file"),
        ([], {"LLAMA_ARG_API_KEY_FILE": str(file)}, "LLAMA_ARG_API_KEY_FILE"),
    ):
        [(found, said, _)] = problems(*argv, **env)
        assert found == key
        assert rule in said


@pytest.mark.parametrize("text", [",", "", " , "])
def test_a_list_without_a_name_is_refused(text: str) -> None:
    assert problems("--alias", text) == [("--alias", "names nothing; leave it out", "")]


@pytest.mark.parametrize(
    ("argv", "env"), [(["--timeout", "0"], {}), ([], {"LLAMA_ARG_TIMEOUT": "0"})]
)
def test_a_timeout_of_zero_is_refused_with_the_reason(argv: list[str], env: dict[str, str]) -> None:
    [(_, rule, _)] = problems(*argv, **env)
    assert rule.startswith("would close every connection")
    assert values(parsed("--timeout", "10")) == {"limits.http_timeout_secs": 10}


@pytest.mark.parametrize("name", ["LLAMA_ARG_SSL_CERT_FILE", "LLAMA_ARG_SSL_KEY_FILE"])
def test_a_variable_that_asks_for_tls_is_refused(name: str) -> None:
    """Serving in clear what was meant to be encrypted would be the worst way to ignore it."""
    [(key, rule, _)] = problems(**{name: "/etc/cert.pem"})
    assert key == name
    assert "TLS is not built yet" in rule
    assert values(parsed(**{name: ""})) == {}
