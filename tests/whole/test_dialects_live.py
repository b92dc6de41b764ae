"""docs/dialects.md has every field that a running server answers, and none that it does not."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects import HAS, table
from tests.metrics.text import kinds
from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

FREE = ("params", "generation_settings")
"""Values that have a table of their own."""
ASKED = {"prompt": "2+2=", "n_predict": 3, "n_probs": 1, "lora": []}


@pytest.fixture(scope="module")
def program(tiny: Path) -> Iterator[Program]:
    words = (*serve_checkpoint(tiny), "--props", "--metrics")
    with Program(*words, env={"LLAMA_SERVER_SLOTS_DEBUG": "1"}) as running:
        yield running


@pytest.fixture(scope="module")
def answers(program: Program) -> list[Any]:
    """In one piece and as a stream, with all that may be asked for."""
    progress = {"stream": True, "return_progress": True, "timings_per_token": True}
    asked = [ASKED, ASKED | {"post_sampling_probs": True}, ASKED | {"prompt": "2+2=4"}]
    return [_post(program, body) for body in asked] + _frames(program, ASKED | progress)


def test_an_answer(answers: list[Any]) -> None:
    assert "status" in answers[0]["timings"]["cache"]
    told = _told("Fields of an answer of `/completion`") - {"timings.cache"}
    assert set(_names(answers, (*FREE, "cache"))) == told


def test_the_settings_of_an_answer(answers: list[Any]) -> None:
    found = [answer["generation_settings"] for answer in answers if answer["stop"]]
    _agree(found, "`generation_settings`, and `params` of slots and properties", apart=("lora",))


def test_slots(program: Program, answers: list[Any]) -> None:
    _agree(_get(program, "/slots"), "`/slots`", apart=FREE)


def test_settings_of_slots_and_properties(program: Program, answers: list[Any]) -> None:
    known = _told("`generation_settings`, and `params` of slots and properties")
    slot = next(slot for slot in _get(program, "/slots") if "params" in slot)
    props = _get(program, "/props")["default_generation_settings"]["params"]
    assert set(props) == known - {"lora"}
    assert set(slot["params"]) == known - {"stream", "timings_per_token"}


def test_properties(program: Program) -> None:
    _agree(_get(program, "/props"), "`/props`", apart=FREE)


def test_metrics(program: Program) -> None:
    with urllib.request.urlopen(program.url + "/metrics", timeout=10) as response:
        found = set(kinds(response.read().decode()))
    ours = {name for name in found if name.startswith("mlxcel_")}
    drafting = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    assert ours
    assert found - ours == _told("`/metrics`") - {"mlxcel_*", drafting}


def _agree(answer: Any, heading: str, *, apart: tuple[str, ...]) -> None:
    assert set(_names(answer, apart)) == _told(heading)


def _told(heading: str) -> set[str]:
    return {name for name, verdict in table(heading).items() if verdict in HAS}


def _names(value: Any, apart: tuple[str, ...]) -> Iterator[str]:
    """The keys of it and of all that is in it, but for what has a table of its own."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in apart:
                yield from _names(inner, apart)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner, apart)


def _get(program: Program, path: str) -> Any:
    status, answer = program.get(path)
    assert status == 200, answer
    return answer


def _post(program: Program, body: dict[str, Any]) -> Any:
    status, answer = program.post("/completion", body)
    assert status == 200, answer
    return answer


def _frames(program: Program, body: dict[str, Any]) -> list[Any]:
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{program.url}/completion", json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=60) as response:
        lines = response.read().decode().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
