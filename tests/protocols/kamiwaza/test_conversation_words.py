"""Ids, headers, usage and bodies of the kamiwaza dialect."""

from typing import Any

import pytest

from mlxcel.core.answer import Answer, Choice
from mlxcel.core.cache import CacheReport, CacheStatus, CacheUse, Reject, Source
from mlxcel.core.errors import BadField, BadRequest
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Timings,
    Usage,
)
from mlxcel.protocols.anthropic import messages
from mlxcel.protocols.base import Head, Read, ignored_tools
from mlxcel.protocols.kamiwaza.asked import Asked, clean_id, read_asked
from mlxcel.protocols.kamiwaza.chat import with_conversation
from mlxcel.protocols.kamiwaza.headers import conversation_headers
from mlxcel.protocols.kamiwaza.saved import MOST_BYTES, SaveBody, read_save
from mlxcel.protocols.openai import chat, completions
from tests.protocols.samples import RULES, SETTINGS

HEAD = Head(id="chatcmpl-1", created=1_790_000_000, model="tiny-chat")
USAGE = Usage(prompt_tokens=143, completion_tokens=7, cached_tokens=120)
TIMINGS = Timings(queued_ms=0.0, prompt_ms=10.0, decode_ms=200.0, total_ms=200.0)
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


def read(address: str | None = "client:10.0.0.1", named: str | None = None, **fields: Any) -> Read:
    body = BODY | fields
    inner = chat.read(body, request_id="chatcmpl-1", settings=SETTINGS, received_s=0.0, rules=RULES)
    return with_conversation(inner, body, named=named, address=address)


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        pytest.param({}, Asked(), id="none"),
        pytest.param({"conversation": " a "}, Asked(id="a"), id="trimmed"),
        pytest.param({"conversation_id": "b"}, Asked(id="b"), id="second-name"),
        pytest.param({"conversation": "a", "conversation_id": "b"}, Asked(id="a"), id="both"),
        pytest.param({"conversation": " ", "conversation_id": "b"}, Asked(id="b"), id="blank"),
        pytest.param({"conversation": None, "conversation_id": ""}, Asked(), id="null-and-empty"),
        pytest.param({"reset_conversation": True}, Asked(is_reset=True), id="reset"),
        pytest.param({"reset_conversation": None}, Asked(), id="reset-null"),
    ],
)
def test_what_a_body_asks_for(body: dict[str, Any], asked: Asked) -> None:
    assert read_asked(body) == asked


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"conversation": 5}, id="number"),
        pytest.param({"conversation": "a", "conversation_id": ["b"]}, id="second-is-no-string"),
        pytest.param({"reset_conversation": "yes"}, id="reset-no-boolean"),
    ],
)
def test_wrong_types_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadField):
        read_asked(body)


@pytest.mark.parametrize("length", [512, 513])
def test_length_of_an_id(length: int) -> None:
    if length == 512:
        assert clean_id("x" * length) == "x" * length
        return
    with pytest.raises(BadRequest, match="512 characters, got 513"):
        clean_id("x" * length)


@pytest.mark.parametrize(
    ("fields", "named", "address", "conversation"),
    [
        pytest.param({"conversation": "a"}, "b", "client:1", "a", id="body-wins"),
        pytest.param({"conversation": "  "}, "b", "client:1", "b", id="head-is-next"),
        pytest.param({"conversation": "  "}, None, "client:1", "client:1", id="all-blank"),
        pytest.param({}, None, None, None, id="nobody"),
        pytest.param({"user": "eve"}, None, "client:1", None, id="user-is-no-address"),
        pytest.param({"prompt_cache_key": "k"}, None, "client:1", None, id="key-is-no-address"),
        pytest.param({"user": ""}, None, "client:1", "client:1", id="empty-user-is-nobody"),
        pytest.param({"user": "eve"}, "b", "client:1", "b", id="head-beats-user"),
        pytest.param({"user": "eve", "conversation": "a"}, None, None, "a", id="body-beats-user"),
    ],
)
def test_whose_conversation_it_is(
    fields: dict[str, Any], named: str | None, address: str | None, conversation: str | None
) -> None:
    cache = read(address, named, **fields).request.cache
    assert (cache.conversation, cache.is_on, cache.is_reset) == (conversation, True, False)


def test_a_reset_is_read_cold() -> None:
    cache = read(reset_conversation=True, conversation="a").request.cache
    assert (cache.conversation, cache.is_on, cache.is_reset) == ("a", False, True)


HIT = CacheReport(status=CacheStatus.HIT, reused=120, source=Source.MEMORY)
OLDER = CacheReport(status=CacheStatus.HIT, reused=60, source=Source.DISK, is_older=True)
STATE = CacheReport(status=CacheStatus.HIT, reused=120, source=Source.SNAPSHOT)
SYSTEM = CacheReport(status=CacheStatus.HIT, reused=60, source=Source.MEMORY, is_system=True)
MISS = CacheReport(status=CacheStatus.MISS, reason=Reject.EMPTY_SET)
OFF = CacheReport(status=CacheStatus.OFF, reason=Reject.DISABLED)
OWN = CacheUse(conversation="trip-1")


@pytest.mark.parametrize(
    ("use", "report", "shown"),
    [
        pytest.param(OWN, MISS, ("trip-1", "fresh", "0", "143"), id="fresh"),
        pytest.param(OWN, HIT, ("trip-1", "hit", "120", "23"), id="hit"),
        pytest.param(OWN, STATE, ("trip-1", "hit", "120", "23"), id="hit-of-a-state"),
        pytest.param(OWN, OLDER, ("trip-1", "snapshot", "60", "83"), id="snapshot"),
        pytest.param(OWN, SYSTEM, ("trip-1", "fresh", "60", "83"), id="system-messages-only"),
        pytest.param(CacheUse(), HIT, ("", "none", "120", "23"), id="no-id"),
        pytest.param(
            CacheUse(conversation="a", is_on=False, is_reset=True),
            OFF,
            ("a", "none", "0", "143"),
            id="reset",
        ),
        pytest.param(
            CacheUse(conversation="a", is_on=False),
            OFF,
            ("a", "disabled", "0", "143"),
            id="cache-prompt-false",
        ),
        pytest.param(OWN, OFF, ("trip-1", "disabled", "0", "143"), id="off"),
        pytest.param(OWN, None, ("trip-1", "disabled", "0", "143"), id="no-cache-at-all"),
    ],
)
def test_headers(use: CacheUse, report: CacheReport | None, shown: tuple[str, ...]) -> None:
    names = ("X-Conv-Id", "X-Conv-KV", "X-Conv-Cached-Tokens", "X-Conv-Processing-Tokens")
    assert conversation_headers(use, 143, report) == dict(zip(names, shown, strict=True))


@pytest.mark.parametrize(
    ("conversation", "shown"),
    [
        pytest.param("client:10.0.0.1", "client:10.0.0.1", id="plain"),
        pytest.param("a\r\nSet-Cookie: b", "a%0D%0ASet-Cookie: b", id="line-end"),
        pytest.param("é%", "%C3%A9%25", id="not-ascii"),
    ],
)
def test_an_id_cannot_write_headers(conversation: str, shown: str) -> None:
    assert conversation_headers(CacheUse(conversation=conversation), 1, MISS)["X-Conv-Id"] == shown


def answered(reasoning: str = "") -> Answer:
    choice = Choice(reason=FinishReason.EOS, text="Blue.", reasoning=reasoning)
    return Answer(choices=(choice,), usage=USAGE, timings=TIMINGS)


UNION = {
    "prompt_tokens": 143,
    "completion_tokens": 7,
    "input_tokens": 143,
    "output_tokens": 7,
    "total_tokens": 150,
    "tokens_per_second": 35.0,
    "input_tokens_details": {"cached_tokens": 120},
    "output_tokens_details": {"reasoning_tokens": 0},
}


def test_usage_has_the_keys_of_both() -> None:
    body = read(conversation="trip-1").answer(HEAD, answered())
    usage = {key: value for key, value in body["usage"].items() if key in UNION}
    assert usage == UNION
    assert body["metadata"] == {"conversation_id": "trip-1"}
    assert body["choices"][0]["message"]["content"] == "Blue."


def of_messages(**fields: Any) -> tuple[Read, Read]:
    """A request in Anthropic's form: alone, and in a conversation."""
    body = BODY | fields
    inner = messages.read(body, request_id="m", settings=SETTINGS, received_s=0.0, rules=RULES)
    return inner, with_conversation(inner, body, named="d", address=None)


def test_what_a_dialect_counts_itself_stays() -> None:
    """Anthropic's input tokens are those that were not found in the cache."""
    alone, usage = (made.answer(HEAD, answered())["usage"] for made in of_messages())
    assert (alone["input_tokens"], alone["cache_read_input_tokens"]) == (23, 120)
    assert {name: usage[name] for name in alone} == alone
    assert usage["tokens_per_second"] > 0


def test_left_out_tools_are_known_around_a_conversation() -> None:
    inner, made = of_messages(tools=[{"type": "web_search"}])
    assert tuple(ignored_tools(made)) == tuple(ignored_tools(inner)) == ("web_search",)
    assert not ignored_tools(read())


def test_without_an_id_there_is_no_metadata() -> None:
    assert "metadata" not in read(None).answer(HEAD, answered())


def test_tokens_of_thinking_are_not_made_up() -> None:
    usage = read().answer(HEAD, answered("hm"))["usage"]
    assert "output_tokens_details" not in usage


def test_usage_of_a_stream() -> None:
    asked = read(stream=True, stream_options={"include_usage": True})
    encoder = asked.encoder(HEAD)
    events: list[Event] = [
        Accepted(143),
        ChoiceFinished(FinishReason.EOS),
        Finished(usage=USAGE, timings=TIMINGS),
    ]
    frames = [frame.data for event in events for frame in encoder.encode(event)]
    assert frames.pop() == "[DONE]"
    usages = [f["usage"] for f in frames if not isinstance(f, str) and "usage" in f]
    assert [{k: v for k, v in usage.items() if k in UNION} for usage in usages] == [UNION]


def test_a_stream_with_thoughts_counts_none_of_them() -> None:
    encoder = read(stream=True, stream_options={"include_usage": True}).encoder(HEAD)
    events: list[Event] = [
        Accepted(143),
        ReasoningDelta("hm"),
        ChoiceFinished(FinishReason.EOS),
        Finished(usage=USAGE, timings=TIMINGS),
    ]
    frames = [frame.data for event in events for frame in encoder.encode(event)]
    (usage,) = (f["usage"] for f in frames if not isinstance(f, str) and "usage" in f)
    assert "output_tokens_details" not in usage


def test_text_that_is_no_chat_is_of_no_conversation() -> None:
    body = {"model": "tiny", "prompt": ["a", "b"], "conversation": "c"}
    inner = completions.read(
        body, request_id="cmpl-1", settings=SETTINGS, received_s=0.0, rules=RULES
    )
    assert with_conversation(inner, body, named="d", address="client:10.0.0.1") is inner


def test_a_turn_is_answered_and_counted_as_its_chat_is() -> None:
    turn = read(stream=True)
    assert [request.cache.conversation for request in turn.requests] == ["client:10.0.0.1"]
    assert (turn.stream, turn.ping_s, turn.is_counted) == (True, None, True)


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        pytest.param({"conversation": "a"}, SaveBody(id="a"), id="least"),
        pytest.param(
            {
                "conversation_id": "a",
                "title": "Lisbon notes",
                "budget_mb": 0.5,
                "override_limit": True,
            },
            SaveBody(id="a", title="Lisbon notes", budget_bytes=524288, is_unlimited=True),
            id="all",
        ),
        pytest.param(
            {"conversation": "a", "budget_mb": 0}, SaveBody(id="a", budget_bytes=0), id="0"
        ),
        pytest.param(
            {"conversation": "a", "budget_mb": 1e308},
            SaveBody(id="a", budget_bytes=MOST_BYTES),
            id="more-than-there-are",
        ),
    ],
)
def test_save_body(body: dict[str, Any], asked: SaveBody) -> None:
    assert read_save(body) == asked


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="no-id"),
        pytest.param({"conversation": "  "}, id="blank"),
        pytest.param({"conversation": "a", "budget_mb": -1}, id="negative-budget"),
        pytest.param({"conversation": "a", "title": 5}, id="title-no-string"),
        pytest.param({"conversation": "a", "override_limit": 1}, id="override-no-boolean"),
    ],
)
def test_save_body_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        read_save(body)
