"""Where the worker runs changes nothing a client sees, and the front stays free of mlx."""

import sys
from pathlib import Path

import pytest

from tests.whole.program import Program, serve_checkpoint, text_of
from tests.whole.streaming import Stream

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PROMPT = "the same words wherever the model runs"
has_maps = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux lists what a process has mapped"
)


@pytest.mark.parametrize("placement", ["thread", "inline"])
def test_worker_inside_the_front_says_what_a_process_says(
    placement: str, tiny_server: Program, tiny: Path
) -> None:
    expected = tiny_server.chat(PROMPT, max_tokens=24, cache_prompt=False)
    with Program(*serve_checkpoint(tiny), f"workers={placement}") as program:
        health = program.health()
        assert health["worker"]["pid"] == health["front"]["pid"]
        answer = program.chat(PROMPT, max_tokens=24, cache_prompt=False)
        assert text_of(answer) == text_of(expected)
        assert answer["usage"] == expected["usage"]
        with Stream(program.url, PROMPT, max_tokens=24) as stream:
            ended = stream.rest()
        assert ended.text == text_of(expected)
        assert ended.is_done
        assert program.stop() == 0


def mapped(pid: int) -> set[str]:
    """Names of the files a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.rpartition("/")[2] for line in lines}


@has_maps
def test_front_maps_no_mlx_and_the_worker_does(tiny_server: Program) -> None:
    tiny_server.chat(PROMPT, max_tokens=2)
    health = tiny_server.health()
    assert health["worker"]["pid"] != health["front"]["pid"]
    front, worker = mapped(health["front"]["pid"]), mapped(health["worker"]["pid"])
    assert any(name.startswith("libmlx") for name in worker)
    assert [name for name in front if "mlx" in name.lower()] == []
    assert any(name.startswith("tokenizers") for name in front)
