"""Three turns of an agent in each dialect, byte for byte: what it asks, what it is answered over a
socket, and what it makes of that."""

from collections.abc import Iterator

import pytest

from tests.whole.agents.record import AGENTS, ROOT, server, turns
from tests.whole.program import Program

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with server() as running:
        yield running


@pytest.mark.parametrize("name", AGENTS)
def test_a_round_trip_is_as_recorded(program: Program, name: str) -> None:
    walked = set()
    for file, text in turns(program, AGENTS[name]):
        assert text == (ROOT / name / file).read_text("utf-8"), file
        walked.add(file)
    assert walked == {path.name for path in (ROOT / name).iterdir()}


def test_no_other_is_recorded() -> None:
    recorded = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.rglob("turn*")}
    assert recorded == set(AGENTS)
