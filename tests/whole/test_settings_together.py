"""The settings change under load: each answer is made under one published set of them."""

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.whole.program import Program, chat_body, text_of

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

PROMPT = "say something"
SETS = range(4, 12)
TURNS = 10


def pair(number: int) -> dict[str, int]:
    """How long an answer is, and which one: they must agree."""
    return {"default_max_tokens": number, "default_seed": number}


def change(program: Program, number: int, **more: Any) -> dict[str, Any]:
    values = [*pair(number).items(), *more.items()]
    random.Random(number).shuffle(values)
    status, answer = program.call("PATCH", "/v1/settings", dict(values))
    assert status == 200
    assert answer["rejected"] == []
    assert isinstance(answer, dict)
    return answer


def answered(program: Program, **fields: Any) -> tuple[int, str]:
    """How many tokens, and the text."""
    body = chat_body(PROMPT) | fields
    del body["temperature"]
    status, answer = program.post("/v1/chat/completions", body)
    assert status == 200, answer
    return answer["usage"]["completion_tokens"], text_of(answer)


def run(tasks: Sequence[Callable[[], None]]) -> None:
    """All at once; the first failure of any is raised."""
    failures: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)


def test_an_answer_is_of_one_set_while_eight_clients_change_them(tiny_server: Program) -> None:
    wild = {"default_temperature": 2.0, "default_top_k": 0, "default_top_p": 1.0}
    before = change(tiny_server, 4, **wild)["fingerprint"]
    told = {n: answered(tiny_server, max_tokens=n, seed=n) for n in SETS}
    assert len({text for _, text in told.values()}) == len(SETS)
    prints = {before: 4}
    answers: list[tuple[int, str]] = []

    def write(number: int) -> None:
        for _ in range(TURNS):
            prints[change(tiny_server, number)["fingerprint"]] = number

    def look() -> None:
        for _ in range(TURNS):
            current = tiny_server.get("/v1/settings")[1]["current"]
            assert current["default_max_tokens"] == current["default_seed"]

    def ask() -> None:
        answers.extend(answered(tiny_server) for _ in range(TURNS))

    try:
        run([*(lambda n=n: write(n) for n in SETS), look, look, ask, ask, ask])  # type: ignore[misc]
    finally:
        tiny_server.call("PATCH", "/v1/settings", {"op": "replace", "values": {}})
    assert sorted(prints.values()) == list(SETS)
    assert len(answers) == 3 * TURNS
    for count, text in answers:
        assert (count, text) == told[count]
    assert len({count for count, _ in answers}) > 1
