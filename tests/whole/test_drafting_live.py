"""Speculative decoding over HTTP: the same texts, and what an answer, /props, /slots, /health and
/metrics say of it."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.asking import stream
from tests.whole.program import Program, chat_body, serve_checkpoint

pytestmark = pytest.mark.slow

WORDS = "one two three one two three one two"
KEYS = {"draft_n", "draft_n_accepted", "draft_rounds", "draft_kind"}
KINDS = {
    "prompt-lookup": ("--prompt-lookup", "draft.ngram_min=1"),
    "full-model": ("--draft-kind=full-model", "--draft-block-size=4"),
}


@pytest.fixture(scope="module", params=KINDS)
def drafting(request: pytest.FixtureRequest, tiny: Path) -> Iterator[tuple[str, Program]]:
    words = KINDS[request.param]
    own = (f"--model-draft={tiny}",) if request.param == "full-model" else ()
    with Program(*serve_checkpoint(tiny, *words, *own, "--metrics", "--props")) as program:
        yield request.param, program


def timings_of(answer: dict[str, Any], kind: str) -> dict[str, Any]:
    timings: dict[str, Any] = answer["timings"]
    assert timings.keys() >= KEYS
    assert timings["draft_kind"] == kind
    assert 0 <= timings["draft_n_accepted"] <= timings["draft_n"]
    return timings


def test_the_texts_are_those_of_a_server_without(
    drafting: tuple[str, Program], tiny_server: Program
) -> None:
    kind, program = drafting
    for fields in ({"temperature": 0}, {"temperature": 1.0, "seed": 7}):
        mine = program.chat(WORDS, max_tokens=40, **fields)
        theirs = tiny_server.chat(WORDS, max_tokens=40, **fields)
        assert mine["choices"] == theirs["choices"]
        assert mine["usage"]["completion_tokens"] == theirs["usage"]["completion_tokens"]
        timings_of(mine, kind)
        assert not theirs["timings"].keys() & KEYS


def test_a_row_that_cannot_be_foreseen_says_nothing_of_it(drafting: tuple[str, Program]) -> None:
    _, program = drafting
    answer = program.chat(WORDS, max_tokens=20, presence_penalty=0.5)
    assert not answer["timings"].keys() & KEYS


def test_streams_tell_it_at_their_end(drafting: tuple[str, Program]) -> None:
    kind, program = drafting
    streamed = stream(program, chat_body(WORDS, max_tokens=30, temperature=0))
    told = [chunk for chunk in streamed.chunks if KEYS & chunk.get("timings", {}).keys()]
    assert len(told) == 1
    timings_of(told[0], kind)


def test_native_answers_tell_it(drafting: tuple[str, Program]) -> None:
    kind, program = drafting
    body = {"prompt": WORDS, "n_predict": 30, "temperature": 0}
    status, answer = program.post("/completion", body)
    assert status == 200
    timings_of(answer, kind)


def test_a_stop_word_in_an_accepted_run_is_never_seen(
    drafting: tuple[str, Program], tiny_server: Program
) -> None:
    _, program = drafting
    text = tiny_server.chat(WORDS, max_tokens=40, temperature=0)["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    asked = {"max_tokens": 40, "temperature": 0, "stop": [stop]}
    mine, theirs = program.chat(WORDS, **asked), tiny_server.chat(WORDS, **asked)
    assert mine["choices"] == theirs["choices"]
    assert stop not in mine["choices"][0]["message"]["content"]


def test_what_the_server_says_of_itself(drafting: tuple[str, Program], tiny: Path) -> None:
    kind, program = drafting
    program.chat(WORDS, max_tokens=30, temperature=0)
    _, props = program.get("/props")
    model = tiny.name if kind == "full-model" else None
    most = 4 if kind == "full-model" else 7
    assert props["speculative"] == {"model": model, "kind": kind, "n_max": most}
    _, slots = program.get("/slots")
    assert all(slot["speculative"] for slot in slots)
    counters = program.health()["observability"]
    assert counters["draft_rounds"]
    with urllib.request.urlopen(f"{program.url}/metrics") as reply:
        page = reply.read().decode()
    names = {"num_drafts": "rounds", "num_draft_tokens": "proposed"}
    for name, counter in {**names, "num_accepted_tokens": "accepted"}.items():
        found = re.search(rf"^llamacpp:spec_decode_{name}_total (\S+)$", page, re.MULTILINE)
        assert found is not None
        assert float(found[1]) == counters[f"draft_{counter}"]
    assert f"speculative={kind} (max_draft={most}, policy=graded, max_batch=2)" in program.text
