"""What cannot start ends at once, with an exit code and a message that names the thing."""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PATIENCE_S = 30.0


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def checkpoint(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, to be damaged."""
    return shutil.copytree(tiny, tmp_path / "model")


def run(*words: str) -> tuple[int, str]:
    with Program(*words, wait="exit", timeout_s=PATIENCE_S) as program:
        return program.wait(), program.text


def configure(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def truncate(folder: Path) -> Path:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return weights


def test_taken_port_is_found_before_the_model_is_loaded(tiny: Path, taken: int) -> None:
    code, text = run(*serve_checkpoint(tiny), f"server.port={taken}")
    assert code == 1
    assert f"127.0.0.1:{taken} is in use by another process" in text
    assert "reading weights" not in text
    assert "Traceback" not in text


def test_missing_model_folder(tmp_path: Path) -> None:
    code, text = run(*serve_checkpoint(tmp_path / "nowhere"))
    assert code == 1
    assert f"{tmp_path / 'nowhere'}: there is no such folder" in text
    assert "Traceback" not in text


def test_folder_that_holds_no_model(tmp_path: Path) -> None:
    code, text = run(*serve_checkpoint(tmp_path))
    assert code == 1
    assert f"{tmp_path}: there is no config.json in it" in text
    assert "Traceback" not in text


def test_unsupported_model_type_names_the_nearest(checkpoint: Path) -> None:
    configure(checkpoint, model_type="lama")
    code, text = run(*serve_checkpoint(checkpoint))
    assert code == 1
    assert "model_type 'lama' is not supported" in text
    assert "llama" in text.partition("nearest supported:")[2]
    assert "Traceback" not in text


def test_truncated_weights_name_the_file(checkpoint: Path) -> None:
    weights = truncate(checkpoint)
    code, text = run(*serve_checkpoint(checkpoint))
    assert code == 1
    assert str(weights.parent) in text
    assert weights.name in text
    assert "Traceback" not in text


def test_worker_that_cannot_build_the_model_ends_the_server_with_its_reason(
    checkpoint: Path,
) -> None:
    configure(checkpoint, hidden_size=128)
    code, text = run(*serve_checkpoint(checkpoint))
    assert code == 1
    last = text.splitlines()[-1]
    assert "the chat worker did not start" in last
    assert str(checkpoint) in last
    assert "shape" in last
    assert "Traceback" not in text


def test_every_problem_of_the_configuration_at_once_and_nothing_starts() -> None:
    code, text = run("server.prot=1", "scheduler.parallel=many")
    assert code == 2
    assert "server.prot" in text
    assert "did you mean server.port?" in text
    assert "command line: server.prot=1" in text
    assert "scheduler.parallel = many" in text
    assert "command line: scheduler.parallel=many" in text
    assert "front:" not in text
    assert "Traceback" not in text


def test_problems_between_sections_are_exit_2_as_well(tiny: Path) -> None:
    code, text = run(*serve_checkpoint(tiny), "engine=echo", "server.api_prefix=x")
    assert code == 2
    assert "engine.kind = echo" in text
    assert "server.api_prefix = x" in text
    assert "listening" not in text


def test_taken_port_is_said_before_anything_is_downloaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--model", "nobody/nothing", f"server.port={port}", f"model.cache_dir={tmp_path}")
        with Program(*words, wait="exit") as program:
            assert program.wait() == 1
    assert f"127.0.0.1:{port} is in use" in program.text
    assert "nobody/nothing" not in program.text
