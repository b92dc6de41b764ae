"""Items that are odd but allowed, and values that an answer has to be able to repeat."""

from typing import Any

import orjson
import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.events import (
    Accepted,
    ChoiceFinished,
    Finished,
    FinishReason,
    ReasoningDelta,
    Timings,
    Usage,
)
from mlxcel.protocols.responses.kept import items_body, read_page, referenced
from tests.protocols.responses.reading import frames, items_read, read_body, responses_read

USER = {"role": "user", "content": "q"}


def test_no_two_items_of_a_response_have_one_id() -> None:
    """Pages go on behind an id: with two of a kind there would be no end of them."""
    again = {"id": "msg_1", **USER}
    items = items_read([again, again, {"id": "msg_2", **USER}, again]).input_items
    assert len({item["id"] for item in items}) == 4
    assert items[0]["id"] == "msg_1"
    seen: list[str] = []
    after = None
    for _ in items:
        page = items_body(items, read_page("1", "asc", after))
        after = page["last_id"]
        seen.append(after)
    assert seen == [item["id"] for item in items]
    assert not page["has_more"]


def test_a_reference_may_have_a_type_that_is_null() -> None:
    body = {"input": [{"type": None, "id": "msg_1"}, {"id": "msg_2"}, {"id": "x", "role": "user"}]}
    assert referenced(body) == ["msg_1", "msg_2"]
    kept = {"id": "msg_1", "type": "message", "role": "user", "content": [], "status": "completed"}
    read = read_body({"model": "tiny", "input": [body["input"][0], USER]}, find={"msg_1": kept}.get)
    assert read.input_items[0] == kept


def test_the_phase_of_a_message_is_kept() -> None:
    said = {"role": "assistant", "content": "a", "phase": "commentary"}
    (item, other) = items_read([said, USER]).input_items
    assert item["phase"] == "commentary"
    assert "phase" not in other


def nested(depth: int) -> dict[str, Any]:
    return {"x": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param(
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": nested(300)}}},
            "text.format.schema",
            id="schema",
        ),
        pytest.param({"reasoning": nested(300)}, "reasoning", id="reasoning"),
    ],
)
def test_what_is_too_deep_to_be_repeated_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadField) as refused:
        responses_read(**fields)
    assert refused.value.param == param


def test_a_deep_schema_can_be_repeated() -> None:
    schema = nested(98)
    form = {"type": "json_schema", "name": "x", "schema": schema}
    echoed = responses_read(text={"format": form}).echoes["text"]
    assert orjson.loads(orjson.dumps({"response": {"text": echoed}}))
    assert echoed["format"]["schema"] == schema


@pytest.mark.parametrize("name", ["summary", "generate_summary"])
def test_only_known_summaries_can_be_asked_for(name: str) -> None:
    assert responses_read(reasoning={name: "concise"}).sums_up
    assert not responses_read(reasoning={name: None, "effort": "low"}).sums_up
    with pytest.raises(BadField) as refused:
        responses_read(reasoning={name: "short"})
    assert refused.value.param == f"reasoning.{name}"


def test_reasoning_is_echoed_as_it_was_sent() -> None:
    sent = {"effort": "xhigh", "context": "all_turns"}
    assert responses_read(reasoning=sent).echoes["reasoning"] == {**sent, "summary": None}


@pytest.mark.parametrize("reason", [FinishReason.EOS, FinishReason.LENGTH])
def test_a_summary_tells_what_the_thoughts_tell(reason: FinishReason) -> None:
    timings = Timings(queued_ms=1.0, prompt_ms=1.0, decode_ms=1.0, total_ms=3.0)
    usage = Usage(prompt_tokens=1, completion_tokens=2)
    end = (ChoiceFinished(reason), Finished(usage=usage, timings=timings))
    events = [Accepted(1), ReasoningDelta("a"), ReasoningDelta("b"), *end]
    read = responses_read(stream=True, reasoning={"summary": "auto"})
    found = frames(read, events)
    told = {"text": "", "summary": ""}
    for frame in found:
        if frame["type"] == "response.reasoning_text.delta":
            told["text"] += frame["delta"]
        if frame["type"] == "response.reasoning_summary_text.delta":
            told["summary"] += frame["delta"]
            assert frame["summary_index"] == 0
    assert told == {"text": "ab", "summary": "ab"}
    (thought,) = found[-1]["response"]["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "ab"}]
    plain = frames(responses_read(stream=True), events)
    assert not any("summary" in frame["type"] for frame in plain)
    assert plain[-1]["response"]["output"][0]["summary"] == []
