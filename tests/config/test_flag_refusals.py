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


def test_a_container_of_vertex_is_refused() -> None:
    """Its health checks would fail for ever, and nobody told why."""
    [(key, rule, _)] = problems(AIP_MODE="PREDICTION")
    assert key == "AIP_MODE"
    assert "not built" in rule


@pytest.mark.parametrize(
    ("name", "neutral"),
    [
        ("LLAMA_ARG_MAX_IMAGE_WIDTH", "16384"),
        ("LLAMA_ARG_MAX_IMAGE_HEIGHT", "16384"),
        ("LLAMA_ARG_MAX_IMAGE_DECODE_ALLOC_BYTES", "536870912"),
        ("MLXCEL_VIDEO_MAX_FRAMES", "16"),
        ("MLXCEL_VIDEO_FPS", "2.0"),
        ("MLXCEL_VIDEO_MAX_PIXELS", "16777216"),
        ("MLXCEL_VIDEO_MAX_DURATION_SEC", "600"),
        ("MLXCEL_VIDEO_MAX_PNG_FRAME_BYTES", "268435456"),
    ],
)
def test_limits_of_media_that_are_not_served_are_refused(name: str, neutral: str) -> None:
    [(key, rule, _)] = problems(**{name: "7"})
    assert key == name
    assert "not served yet" in rule
    assert values(parsed(**{name: neutral})) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("1", "true", "on", "yes", " yes ")),
        *((text, False) for text in ("TRUE", "On", "0", "no", "2")),
    ],
)
def test_private_addresses_are_opened_by_exact_words(text: str, value: bool) -> None:
    found = values(parsed(MLXCEL_ALLOW_PRIVATE_MEDIA_URLS=text))
    assert found == {"limits.allow_private_media_urls": value}
