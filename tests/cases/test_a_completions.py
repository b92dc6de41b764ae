"""Public faults, family A, on the routes beside the chat: text completions and counts."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.asking import CHAT, assert_error_object, conversation, stream
from tests.cases.conftest import STRICT_ROLES, template_words
from tests.whole.program import Program, chat_body, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

TEXT = "/v1/completions"
COUNTS = ["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"]
CONTEXT = 512
ALIASES = ("main-model", "org/other-name")


def text_body(prompt: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "any", "prompt": prompt, "temperature": 0, "max_tokens": 4} | fields


def completed(program: Program, prompt: Any, **fields: Any) -> dict[str, Any]:
    status, answer = program.post(TEXT, text_body(prompt, **fields))
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("strict-counts")
    with Program("model=echo", template_words(folder, STRICT_ROLES)) as program:
        yield program


@pytest.fixture(scope="module")
def small_context(long_folder: Path) -> Iterator[Program]:
    """Refuses names it does not serve; a slot holds 512 tokens, one for each byte."""
    names = ("--alias", ",".join(ALIASES), "routes.unknown_model=refuse")
    words = ("--ctx-size", str(4 * CONTEXT), *names)
    with Program(*serve_checkpoint(long_folder, *words)) as program:
        yield program


@pytest.mark.parametrize("server", ["echo", "tiny_server"])
def test_a1_text_has_its_own_object_name(echo: Program, tiny_server: Program, server: str) -> None:
    """A1: the legacy route is `text_completion`, in a stream as well."""
    program = {"echo": echo, "tiny_server": tiny_server}[server]
    assert completed(program, "hi")["object"] == "text_completion"
    body = text_body("hi", stream_options={"include_usage": True})
    streamed = stream(program, body, path=TEXT)
    assert {chunk["object"] for chunk in streamed.chunks} == {"text_completion"}
    assert streamed.is_done


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        pytest.param({"max_tokens": 3}, 3, id="older-alone"),
        pytest.param({"max_tokens": 50, "max_completion_tokens": 3}, 3, id="newer-below-older"),
        pytest.param({"max_tokens": None, "n_predict": 2}, 2, id="llama-cpp-name"),
        pytest.param({"max_tokens": 0}, 0, id="none"),
    ],
)
def test_a3_every_name_of_the_limit_holds(
    tiny_server: Program, limits: dict[str, Any], most: int
) -> None:
    """A3: also for text, where no token at all may be asked for."""
    answer = completed(tiny_server, "hi", **limits)
    assert answer["usage"]["completion_tokens"] == most
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("top", [0, 1, 5])
def test_a5_text_has_the_legacy_layout(tiny_server: Program, top: int) -> None:
    """A5: each route has its own layout of log-probabilities, never the other's."""
    answer = completed(tiny_server, "hi", logprobs=top)
    found = answer["choices"][0]["logprobs"]
    assert set(found) == {"tokens", "token_logprobs", "text_offset", "top_logprobs"}
    assert {len(share) for share in found.values()} == {answer["usage"]["completion_tokens"]} == {4}
    for token, value, others in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert value <= 0
        # The one drawn is the likeliest at temperature 0: beside it there are no more.
        assert len(others) == max(top, 1)
        assert others[token] == max(others.values()) == value
    chunks = stream(tiny_server, text_body("hi", logprobs=top), path=TEXT).chunks
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    shares = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert {name: [v for share in shares for v in share[name]] for name in found} == found


def test_a5_text_without_the_wish_has_none(tiny_server: Program) -> None:
    """A5: null where nothing was asked for."""
    assert completed(tiny_server, "hi")["choices"][0]["logprobs"] is None


def test_a5_the_prompt_told_again_has_its_scores(tiny_server: Program) -> None:
    """A5: scores of a prompt are those its tokens have as an answer."""
    said = completed(tiny_server, [72, 105], logprobs=1, max_tokens=3)
    texts = said["choices"][0]["logprobs"]
    ids = [72, 105, *(_id(token) for token in texts["tokens"])]
    scored = completed(tiny_server, ids, logprobs=1, max_tokens=0, echo=True)
    found = scored["choices"][0]["logprobs"]
    assert found["tokens"][2:] == texts["tokens"]
    assert found["token_logprobs"][0] is None
    assert found["top_logprobs"][0] is None
    assert found["token_logprobs"][2:] == pytest.approx(texts["token_logprobs"], abs=1e-3)
    assert scored["usage"]["completion_tokens"] == 0


def _id(token: str) -> int:
    """Of a token of the tiny vocabulary, where each byte is one."""
    return int(token.removeprefix("bytes:\\x"), 16) if token.startswith("bytes:") else ord(token)


def test_a5_each_prompt_of_a_list_is_scored_apart(tiny_server: Program) -> None:
    """A5: as evaluation harnesses ask: token lists, one token, scores of the prompt."""
    prompts = [[72, 105, 33], [65, 66], [67]]
    asked: dict[str, Any] = {"logprobs": 1, "max_tokens": 1, "echo": True}
    together = completed(tiny_server, prompts, **asked)["choices"]
    assert [choice["index"] for choice in together] == [0, 1, 2]
    for prompt, choice in zip(prompts, together, strict=True):
        alone = completed(tiny_server, prompt, **asked)["choices"][0]
        assert choice["text"] == alone["text"]
        assert choice["text"].startswith(bytes(prompt).decode())
        assert choice["logprobs"]["tokens"] == alone["logprobs"]["tokens"]
        values = [choice["logprobs"]["token_logprobs"], alone["logprobs"]["token_logprobs"]]
        assert values[0][1:] == pytest.approx(values[1][1:], abs=1e-3)


@pytest.mark.parametrize("path", COUNTS)
def test_a7_developer_counts_as_system(strict: Program, path: str) -> None:
    """A7: the count renders what the chat renders, with a template that knows three roles."""
    turns = [conversation((role, "Be short."), ("user", "hi")) for role in ("developer", "system")]
    counts = [strict.post(path, body) for body in turns]
    used = strict.post(CHAT, turns[0] | {"max_tokens": 1})[1]["usage"]["prompt_tokens"]
    assert counts == [(200, {"input_tokens": used})] * 2
    texts = [strict.post("/apply-template", body)[1]["prompt"] for body in turns]
    assert texts == ["<|system|>Be short.<|end|><|user|>hi<|end|><|assistant|>"] * 2


@pytest.mark.parametrize("path", [*COUNTS, "/apply-template"])
def test_a9_tool_call_without_content(tiny_server: Program, path: str) -> None:
    """A9: null, absent and empty content come to the same."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answers = []
    for content in ({"content": None}, {}, {"content": ""}):
        messages = [
            {"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [call], **content},
            {"role": "tool", "tool_call_id": "c1", "content": "7"},
        ]
        answers.append(tiny_server.post(path, {"messages": messages}))
    assert answers[0][0] == 200
    assert answers == [answers[0]] * 3


def test_a9_the_count_is_that_of_the_chat(tiny_server: Program) -> None:
    """A9: tools, an answer that is continued, and what the template was given, all counted."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    bodies = [
        chat_body("hi", max_tokens=1),
        chat_body("hi", max_tokens=1, tools=[tool]),
        conversation(("user", "hi"), ("assistant", "Well, "), max_tokens=1),
        conversation(("system", "é漢"), ("user", ""), max_tokens=1),
    ]
    for body in bodies:
        used = tiny_server.post(CHAT, body)[1]["usage"]["prompt_tokens"]
        assert tiny_server.post(COUNTS[0], body) == (200, {"input_tokens": used})


def test_a13_every_promised_name_is_answered(small_context: Program, long_folder: Path) -> None:
    """A13: on every route that takes a model, and as the model that is asked for."""
    entry = small_context.get("/v1/models")[1]["data"][0]
    assert entry["aliases"] == sorted(ALIASES)
    for name in (entry["id"], *ALIASES, long_folder.name, str(long_folder)):
        assert completed(small_context, "hi", model=name)["model"] == entry["id"]
        assert small_context.post(COUNTS[0], chat_body("hi", model=name))[0] == 200
        status, found = small_context.get(f"/v1/models/{name}")
        assert (status, found | {"created": 0}) == (200, entry | {"created": 0})


@pytest.mark.parametrize("name", ["gpt-4o", "main", "/etc", "org/other-name/x"])
def test_a13_any_other_name_is_not_found(small_context: Program, name: str) -> None:
    """A13: 404 `model_not_found`, whoever is asked."""
    answers = [
        small_context.post(TEXT, text_body("hi", model=name)),
        small_context.post(COUNTS[0], chat_body("hi", model=name)),
        small_context.get(f"/v1/models/{name}"),
    ]
    for status, answer in answers:
        assert status == 404
        assert_error_object(answer, code="model_not_found", param="model")


OVERLONG: list[Any] = [
    pytest.param("a " * 3 * CONTEXT, id="text"),
    pytest.param([65] * 3 * CONTEXT, id="ids"),
    pytest.param(["short", "a " * 3 * CONTEXT], id="one-of-two"),
]


@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("prompt", OVERLONG)
def test_a15_overlong_prompt_is_refused_with_both_numbers(
    small_context: Program, prompt: Any, asked_stream: bool
) -> None:
    """A15: before any SSE byte, also for the later ones of a list."""
    began = time.monotonic()
    status, answer = small_context.post(
        TEXT, text_body(prompt, model=ALIASES[0], stream=asked_stream)
    )
    assert time.monotonic() - began < 2
    assert status == 400
    assert_error_object(answer, code="context_length_exceeded")
    assert answer["error"]["param"].startswith("prompt")
    numbers = [int(word) for word in answer["error"]["message"].split() if word.isdigit()]
    assert CONTEXT in numbers
    assert max(numbers) >= 3 * CONTEXT


@pytest.mark.parametrize("room", [-1, 0, 1, 5])
def test_a15_around_the_edge_of_the_window(small_context: Program, room: int) -> None:
    """A15: every prompt length near the window is either refused or answered within it."""
    body = text_body([65] * (CONTEXT - room), model=ALIASES[0], max_tokens=64)
    status, answer = small_context.post(TEXT, body)
    if room <= 0:
        assert status == 400
        assert_error_object(answer, code="context_length_exceeded")
        return
    assert status == 200, answer
    assert 1 <= answer["usage"]["completion_tokens"] <= room
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a15_what_is_too_long_can_be_counted(small_context: Program) -> None:
    """A15: by how much, that is what the count is for; far beyond it nobody reads on."""
    frame = small_context.post(COUNTS[0], chat_body("a", model=ALIASES[0]))[1]["input_tokens"] - 1
    status, answer = small_context.post(COUNTS[0], chat_body("a" * 600, model=ALIASES[0]))
    assert (status, answer) == (200, {"input_tokens": frame + 600})
    status, answer = small_context.post(COUNTS[0], chat_body("a" * 60_000, model=ALIASES[0]))
    assert status == 400
    assert_error_object(answer, code="context_length_exceeded", param="messages")


IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}}


@pytest.mark.parametrize("path", [CHAT, *COUNTS, "/apply-template"])
def test_a9_an_image_is_refused_before_it_is_fetched(tiny_server: Program, path: str) -> None:
    """A9: content that a text model cannot take is 501, with its place."""
    body = chat_body("", max_tokens=1) | {"messages": [{"role": "user", "content": [IMAGE]}]}
    status, answer = tiny_server.post(path, body)
    assert status == 501
    assert_error_object(answer, param="messages[0].content[0]")
    assert answer["error"]["type"] == "not_supported_error"
    assert answer["error"]["message"].startswith("image input is not supported")
