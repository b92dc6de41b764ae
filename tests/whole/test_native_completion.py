"""The native routes on a real model: what fields do to an answer, and what it says of itself."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

MARKERS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = build_tiny_checkpoint(tmp_path_factory.mktemp("native") / "tiny", markers=MARKERS)
    with Program(*serve_checkpoint(folder)) as running:
        yield running


def ask(program: Program, path: str = "/completion", **fields: Any) -> Any:
    status, answer = program.post(path, {"prompt": "2+2=", "n_predict": 16} | fields)
    assert status == 200, answer
    return answer


def frames(program: Program, **fields: Any) -> list[Any]:
    body = {"prompt": "2+2=", "n_predict": 16, "stream": True} | fields
    request = urllib.request.Request(
        f"{program.url}/completion",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        text = response.read().decode()
    lines = [line for line in text.split("\n\n") if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_stream_adds_up_to_the_answer(program: Program) -> None:
    whole = ask(program, temperature=0, return_tokens=True)
    *pieces, last = frames(program, temperature=0)
    assert "".join(piece["content"] for piece in pieces) == whole["content"]
    assert [token for piece in pieces for token in piece["tokens"]] == whole["tokens"]
    assert len(whole["tokens"]) == whole["tokens_predicted"] == last["tokens_predicted"] == 16
    assert whole["tokens_cached"] == whole["tokens_evaluated"] + 15
    assert (last["stop_type"], last["stop"], last["tokens"]) == ("limit", True, [])
    assert (whole["id_slot"] >= 0, pieces[0]["id_slot"]) == (True, -1)


def test_one_token_is_the_least(program: Program) -> None:
    assert ask(program, n_predict=0)["tokens_predicted"] == 1


def test_a_full_window_is_a_limit_that_cuts(program: Program) -> None:
    answer = ask(program, n_predict=-1, temperature=0)
    assert (answer["truncated"], answer["stop_type"]) == (True, "limit")
    assert not ask(program)["truncated"]


def test_progress_of_a_prompt_is_told_to_its_end(program: Program) -> None:
    sent = frames(program, prompt="y" * 400, n_predict=1, return_progress=True)
    told = [frame["prompt_progress"] for frame in sent if "prompt_progress" in frame]
    assert (told[0]["processed"], told[-1]["processed"]) == (told[0]["cache"], told[-1]["total"])
    assert len(told) >= 3
    assert sent[len(told)]["tokens_predicted"] == 1


def test_texts_of_a_bias_decide_what_is_said(program: Program) -> None:
    assert set(ask(program, logit_bias=[["AB", 1000]])["content"]) <= {"A", "B"}
    greedy = ask(program, temperature=0, return_tokens=True)["tokens"]
    banned = [[token, False] for token in set(greedy)]
    other = ask(program, temperature=0, return_tokens=True, logit_bias=banned)["tokens"]
    assert not set(other) & set(greedy)


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        pytest.param({"grammar": 'root ::= "abc" [d-d]'}, "abcd", id="grammar"),
        pytest.param({"json_schema": {"const": "abc"}}, '"abc"', id="schema"),
        pytest.param({"grammar": 'root ::= "x"', "json_schema": {"const": 1}}, "x", id="both"),
        pytest.param({"grammar": 'root ::= "abc"', "stop": ["c"]}, "ab", id="stop"),
    ],
)
def test_the_form_of_an_answer(program: Program, fields: dict[str, Any], content: str) -> None:
    answer = ask(program, **fields)
    assert answer["content"] == content
    assert answer["stop_type"] == ("word" if "stop" in fields else "eos")
    assert answer["stopping_word"] == ("c" if "stop" in fields else "")


def test_lines_and_time_end_an_answer(program: Program) -> None:
    lines = 'root ::= "    a\\n" "b\\n" "cccc"'
    answer = ask(program, grammar=lines, n_indent=4)
    assert (answer["stop_type"], answer["has_new_line"]) == ("limit", True)
    assert "b" not in answer["content"]
    endless = 'root ::= ("a" "\\n")+'
    answer = ask(program, grammar=endless, n_predict=400, t_max_predict_ms=1)
    assert (answer["stop_type"], answer["tokens_predicted"] < 400) == ("limit", True)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_probabilities_are_of_the_tokens_said(program: Program, stream: bool) -> None:
    asked: dict[str, Any] = {"n_probs": 3, "temperature": 0}
    if stream:
        *pieces, _ = frames(program, **asked)
        found = [entry for piece in pieces for entry in piece["completion_probabilities"]]
    else:
        found = ask(program, **asked)["completion_probabilities"]
    said = ask(program, temperature=0, return_tokens=True)["tokens"]
    assert [entry["id"] for entry in found] == said
    assert all(entry["id"] == entry["top_logprobs"][0]["id"] for entry in found)
    assert {len(entry["top_logprobs"]) for entry in found} == {3}


def test_probabilities_behind_the_samplers_are_shares(program: Program) -> None:
    found = ask(program, n_probs=40, top_k=2, post_sampling_probs=True)["completion_probabilities"]
    for entry in found:
        likely = [one["prob"] for one in entry["top_probs"] if one["prob"] > 0]
        assert len(likely) <= 2
        assert sum(likely) == pytest.approx(1, abs=1e-4)


def test_every_token_of_the_prompt_is_read_anew_when_asked(program: Program) -> None:
    for _ in range(2):
        warm = ask(program, prompt="z" * 200, n_predict=2)
    assert warm["timings"]["cache_n"] > 0
    cold = ask(program, prompt="z" * 200, n_predict=2, cache_prompt=False)
    assert (cold["timings"]["cache_n"], cold["timings"]["prompt_n"]) == (0, 201)


def test_a_gap_is_filled_between_the_markers(program: Program) -> None:
    gap = {"input_prefix": "def f(", "input_suffix": "): pass"}
    answer = ask(program, "/infill", **gap, prompt="a")
    assert answer["tokens_evaluated"] == len("def f(a" + "): pass") + 4  # BOS and three markers
    status, refused = program.post("/infill", gap | {"input_prefix": MARKERS[2]})
    assert (status, refused["error"]["param"]) == (400, "input_prefix")


def test_a_grammar_that_cannot_be_read_is_refused(program: Program) -> None:
    status, answer = program.post("/completion", {"prompt": "x", "grammar": "root ::= ("})
    assert (status, answer["error"]["param"]) == (400, "grammar")


LAZY = {"grammar": 'root ::= "A" "bc"', "grammar_lazy": True, "logit_bias": [["A", 1000]]}


@pytest.mark.parametrize(
    "trigger",
    [{"type": 0, "value": "A", "token": 65}, {"type": 1, "value": "A"}, {"type": 2, "value": "A"}],
    ids=["token", "word", "pattern"],
)
def test_a_lazy_grammar_waits_for_its_trigger(program: Program, trigger: dict[str, Any]) -> None:
    triggers = {"grammar_triggers": [trigger], "preserved_tokens": ["A"]}
    assert ask(program, **LAZY, **triggers)["content"] == "Abc"
    free = LAZY | {"logit_bias": [["B", 1000]]}
    assert ask(program, **free, **triggers)["content"] == "B" * 16


def test_a_word_of_one_token_must_be_preserved(program: Program) -> None:
    body = {"prompt": "x", "grammar_triggers": [{"type": 1, "value": "A"}]} | LAZY
    status, answer = program.post("/completion", body)
    assert status == 400
    assert "preserved_tokens" in answer["error"]["message"]


def test_a_default_form_binds_these_routes_alone(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "form.gbnf"
    file.write_text('root ::= "server"', encoding="utf-8")
    with Program(*serve_checkpoint(tiny), "--grammar-file", str(file)) as program:
        assert ask(program)["content"] == "server"
        assert ask(program, grammar='root ::= "mine"')["content"] == "mine"
        assert ask(program, grammar="", temperature=0)["content"] != "server"
        chat = program.chat("hi", max_tokens=16)
        assert chat["choices"][0]["message"]["content"] != "server"
        status, answer = program.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
        assert (status, answer["error"]["type"]) == (501, "not_supported_error")


def test_a_default_form_that_cannot_be_had_stops_the_start(tiny: Path) -> None:
    with Program(*serve_checkpoint(tiny), "-j", '{"type": 7}', wait="exit") as program:
        assert program.wait() == 1
    assert "generation.json_schema" in program.text
