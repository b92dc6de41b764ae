"""Why a prompt was read again, as a client is told: reason, what of the key differs, and the place
in the prompt, in the header and in the body alike, in either form."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.weights.adapters import write_mlx
from tests.whole.cache_calls import Body, Told, ask, chat, reset, stats
from tests.whole.program import Program, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

LONG = "some words that do not change, one after the other. " * 30
BOTH_FORMS = pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_checkpoint(tmp_path_factory.mktemp("explained") / "tiny", window=4096)


@pytest.fixture(scope="module")
def program(folder: Path) -> Iterator[Program]:
    with Program(*serve_checkpoint(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def brief(folder: Path) -> Iterator[Program]:
    """Keeps things for a short time, and takes over less than a block where it can."""
    options = ("cache.prompt.min_prefix=16", "cache.prompt.ttl_secs=2")
    with Program(*serve_checkpoint(folder, *options)) as running:
        yield running


def second(program: Program, one: Body, other: Body, *, stream: bool = False) -> Told:
    """What the second of two requests is told, on a server that had only them."""
    reset(program)
    assert ask(program, one, stream=stream).header == "miss; reason=empty_set"
    return ask(program, other, stream=stream)


def sharing(tokens: int, *, after: str) -> Body:
    """A prompt of a marker and text, a token a byte."""
    return chat("w" * (tokens - 1) + after * 30)


@BOTH_FORMS
@pytest.mark.parametrize(
    ("shared", "header"),
    [
        pytest.param(
            70, "hit; reused=64; source=memory; reason=block_boundary_floor; at=70", id="70"
        ),
        pytest.param(
            40, "hit; reused=32; source=memory; reason=block_boundary_floor; at=40", id="40"
        ),
        pytest.param(64, "hit; reused=64; source=memory; at=64", id="64"),
        pytest.param(31, "miss; reason=prefix_too_short; at=31", id="31"),
        pytest.param(1, "miss; reason=prefix_too_short; at=1", id="1"),
    ],
)
def test_short_hits_and_short_misses(
    program: Program, shared: int, header: str, stream: bool
) -> None:
    one, other = sharing(shared, after="a"), sharing(shared, after="b")
    told = second(program, one, other, stream=stream)
    assert told.header == header
    assert told.diverged["at"] == shared
    assert told.diverged["entry"].endswith("aaaa")
    assert told.diverged["prompt"].endswith("bbbb")


@BOTH_FORMS
def test_whole_prompt_is_never_taken_over(program: Program, stream: bool) -> None:
    """A prompt of 64 tokens, again: at most 63 are there, and 32 are whole blocks."""
    told = second(program, chat("w" * 61), chat("w" * 61), stream=stream)
    assert told.usage["prompt_tokens"] == 64
    assert told.header == "hit; reused=32; source=memory"
    assert told.cache["diverged"] is None


def test_less_than_a_block_is_a_floor_where_it_would_be_enough(brief: Program) -> None:
    told = second(brief, sharing(20, after="a"), sharing(20, after="b"))
    assert told.header == "miss; reason=block_boundary_floor; at=20"
    told = second(brief, sharing(15, after="a"), sharing(15, after="b"))
    assert told.header == "miss; reason=prefix_too_short; at=15"


@BOTH_FORMS
def test_word_changed_early_in_a_long_prompt_is_shown(program: Program, stream: bool) -> None:
    one = chat("hi", f"On the 4th of May: {LONG}")
    other = chat("hi", f"On the 5th of May: {LONG}")
    told = second(program, one, other, stream=stream)
    assert told.usage["prompt_tokens"] > 1500
    assert told.header == "miss; reason=prefix_too_short; at=8"
    assert told.diverged == {
        "at": 8,
        "prompt": "the 5th of M",
        "entry": "the 4th of M",
        "differs": [],
    }
    assert stats(program)["reject_prefix_too_short"] > 0


def test_last_miss_is_in_the_counters(program: Program) -> None:
    told = second(program, sharing(9, after="a"), sharing(9, after="b"))
    body = stats(program)
    assert body["last_reject_reason"] == "prefix_too_short"
    assert body["last_reject_seq_id"] == told.headers["x-request-id"]
    assert body["last_reject_context_len"] == told.usage["prompt_tokens"]
    assert body["last_reject_entry_len"] == told.usage["prompt_tokens"]
    assert abs(body["last_reject_at_unix_ms"] / 1000 - time.time()) < 60


def tool(name: str, description: str = "does it", **properties: Any) -> Body:
    parameters = {"type": "object", "properties": properties}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


NUMBER, TEXT = {"type": "number"}, {"type": "string"}
A, B = tool("a"), tool("b")
TWO = {"tools": [A, B]}
NAMED = {"type": "function", "function": {"name": "a"}}


@BOTH_FORMS
@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        pytest.param({"tools": [A]}, TWO, ["tools"], id="one-tool-more"),
        pytest.param(TWO, {"tools": [B, A]}, ["tools"], id="order-of-tools"),
        pytest.param({"tools": [A]}, {"tools": [B]}, ["tools"], id="name-of-a-tool"),
        pytest.param({"tools": [A]}, {"tools": [tool("a", "!")]}, ["tools"], id="description"),
        pytest.param(
            {"tools": [tool("a", x=NUMBER)]}, {"tools": [tool("a", x=TEXT)]}, ["tools"], id="schema"
        ),
        pytest.param({}, {"tools": [A]}, ["tool_choice", "tools"], id="first-tool"),
        pytest.param({"tools": [A]}, {}, ["tool_choice", "tools"], id="no-tools-any-more"),
        pytest.param(TWO, TWO | {"tool_choice": "none"}, ["tool_choice"], id="none"),
        pytest.param(TWO, TWO | {"tool_choice": "required"}, ["tool_choice"], id="required"),
        pytest.param(TWO, TWO | {"tool_choice": NAMED}, ["tool_choice"], id="named"),
        pytest.param(
            {"chat_template_kwargs": {"mood": "mild"}},
            {"chat_template_kwargs": {"mood": "wild"}},
            ["template"],
            id="template-kwargs",
        ),
        pytest.param({}, {"chat_template_kwargs": {"x": 1}}, ["template"], id="a-kwarg-more"),
        pytest.param(
            {"tools": [A], "chat_template_kwargs": {"x": 1}},
            {"tools": [B], "chat_template_kwargs": {"x": 2}},
            ["template", "tools"],
            id="two-at-once",
        ),
    ],
)
def test_what_of_the_key_differs_is_named(
    program: Program, one: Body, other: Body, differs: list[str], stream: bool
) -> None:
    """And the place, where the prompt shows the difference too."""
    told = second(program, chat(LONG) | one, chat(LONG) | other, stream=stream)
    at = told.diverged["at"]
    assert told.header == f"miss; reason=empty_set; differs={','.join(differs)}; at={at}"
    assert told.diverged["differs"] == differs
    _assert_parts(told)
    assert ask(program, chat(LONG) | other, stream=stream).reused > 1500


def _assert_parts(told: Told) -> None:
    """The excerpts begin alike, and part at the place; a prompt that is all the same has none."""
    prompt, entry = _pieces(told.diverged["prompt"]), _pieces(told.diverged["entry"])
    before = min(4, told.diverged["at"])
    assert prompt[:before] == entry[:before]
    if told.diverged["at"] == told.usage["prompt_tokens"]:
        assert prompt[before:] == []
    else:
        assert prompt[before] != entry[before]


def _pieces(excerpt: str) -> list[str]:
    """A marker is a token, any other character here as well."""
    return re.findall(r"<\|\w+\|>|.", excerpt, re.DOTALL)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(TWO, TWO | {"tool_choice": "auto"}, id="auto-is-the-default"),
        pytest.param(
            {"chat_template_kwargs": {"x": 1, "y": 2}},
            {"chat_template_kwargs": {"y": 2, "x": 1}},
            id="order-of-kwargs",
        ),
        pytest.param({}, {"tools": [], "chat_template_kwargs": {}}, id="empty-is-absent"),
        pytest.param({}, {"temperature": 1.0, "top_p": 0.5, "seed": 3}, id="sampling"),
        pytest.param({}, {"max_tokens": 3, "n": 2, "stop": ["x"]}, id="length-and-stops"),
        pytest.param({"user": "eve"}, {"prompt_cache_key": "eve"}, id="one-name-two-fields"),
    ],
)
def test_what_is_no_part_of_the_key(program: Program, one: Body, other: Body) -> None:
    assert second(program, chat(LONG) | one, chat(LONG) | other).reused > 1500


def test_nearest_of_several_is_named(program: Program) -> None:
    """Not the newest: the one that has most in common."""
    reset(program)
    kwargs = {"chat_template_kwargs": {"x": 1}}
    ask(program, chat(f"{LONG}x") | kwargs)
    ask(program, chat(f"other {LONG}") | {"chat_template_kwargs": {"x": 2}})
    told = ask(program, chat(f"{LONG}y"))
    assert told.header == f"miss; reason=empty_set; differs=template; at={len(LONG) + 1}"
    assert (told.diverged["prompt"][4], told.diverged["entry"][4]) == ("y", "x")


@BOTH_FORMS
@pytest.mark.parametrize(
    "cold",
    [{"cache_prompt": False}, {"extra_body": {"cache_prompt": False}}],
    ids=["root", "nested"],
)
def test_cold_request_reads_and_leaves_nothing(program: Program, cold: Body, stream: bool) -> None:
    reset(program)
    ask(program, chat(LONG), stream=stream)
    before = stats(program)
    told = ask(program, chat(LONG) | cold, stream=stream)
    assert (told.header, told.reused) == ("off; reason=disabled", 0)
    assert told.cache["diverged"] is None
    ask(program, chat(f"never {LONG}") | cold, stream=stream)
    after = stats(program)
    assert after["reject_disabled"] == before["reject_disabled"] + 2
    same = ("lookups", "hits", "inserts", "entries", "bytes", "tokens_looked_up")
    assert [after[key] for key in same] == [before[key] for key in same]


@BOTH_FORMS
def test_cold_request_by_the_official_client(program: Program, stream: bool) -> None:
    """Its `extra_body` is flattened into the root."""
    reset(program)
    ask(program, chat(LONG))
    with openai.OpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(
            **chat(LONG), stream=stream, extra_body={"cache_prompt": False}
        )
        assert raw.headers["x-cache-status"] == "off; reason=disabled"
        raw.http_response.read()
    assert stats(program)["entries"] == 1


def test_reset_forgets_everything_and_counts_on(program: Program) -> None:
    reset(program)
    ask(program, chat(LONG))
    ask(program, chat(f"other {LONG}") | {"user": "eve"})
    before = stats(program)
    assert (before["entries"], before["bytes"] > 0) == (2, True)
    status, body = program.post("/v1/cache/reset", {})
    assert (status, body) == (
        200,
        {"cleared": True, "freed_bytes": before["bytes"], "freed_entries": 2},
    )
    after = stats(program)
    emptied = ("entries", "bytes", "total_blocks_stored", "unique_block_hashes")
    assert [after[key] for key in emptied] == [0] * 4
    assert after["lookups"] == before["lookups"]
    assert ask(program, chat(LONG)).header == "miss; reason=empty_set"
    assert ask(program, chat(LONG)).reused > 1500


def test_age_counts_from_the_last_use(brief: Program) -> None:
    """Used at 0 and 1.2 s it is there at 2.4 s, and gone 2 s after that."""
    reset(brief)
    ask(brief, chat(LONG))
    for _ in range(2):
        time.sleep(1.2)
        assert ask(brief, chat(LONG)).header.startswith("hit; ")
    time.sleep(2.3)
    before = stats(brief)["evictions_ttl"]
    assert ask(brief, chat(LONG)).header == "miss; reason=empty_set"
    assert stats(brief)["evictions_ttl"] > before


@pytest.mark.slow
@BOTH_FORMS
def test_other_scale_of_an_adapter_is_named(folder: Path, tmp_path: Path, stream: bool) -> None:
    """Scales change between two starts; what is kept on disk says under which it was read."""
    adapter = write_mlx(tmp_path / "adapter")

    def serve(scale: float) -> Program:
        options = ("cache=disk", f"cache.disk.path={tmp_path / 'kept'}")
        words = ("--lora-scaled", f"{adapter}:{scale}", *options)
        return Program(*serve_checkpoint(folder, *words))

    with serve(1.0) as first:
        ask(first, chat(LONG), stream=stream)
        deadline = time.monotonic() + 20
        while stats(first)["disk"]["queue_bytes"] or not stats(first)["disk"]["files"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with serve(0.5) as other:
        told = ask(other, chat(LONG), stream=stream)
        at = told.usage["prompt_tokens"]
        assert told.header == f"miss; reason=empty_set; differs=lora; at={at}"
    with serve(1.0) as again:
        told = ask(again, chat(LONG), stream=stream)
        assert told.header.startswith("hit; reused=1536; source=disk")
