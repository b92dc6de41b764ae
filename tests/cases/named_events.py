"""The routes whose streams name their events: Anthropic's Messages and OpenAI's Responses.

Whatever is read here is held to the dialect's order and keys (public faults D2 and E1), so that
each case that runs on these routes looks at them as well.
"""

import secrets
from typing import Any, ClassVar

from tests.cases.asking import DONE, Chunk, Streamed
from tests.cases.route import Route, Seen

Usage = dict[str, Any]


def events(streamed: Streamed) -> list[Chunk]:
    """Fails the test for an event whose name is not its type, and for the mark of another
    dialect."""
    names = [line.removeprefix("event: ") for line in streamed.lines if line.startswith("event:")]
    assert DONE not in streamed.payloads
    found = streamed.chunks
    assert names == [event["type"] for event in found]
    return found


class Messages(Route):
    """No seed can be asked for."""

    path = "/v1/messages"
    param = "messages"
    form_param = "output_config.format"
    failed_type = "api_error"
    types: ClassVar = {"model_not_found": "not_found_error"}
    """Of errors by their codes, which are not on the wire."""
    reasons: ClassVar = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}
    keys: ClassVar = {
        *("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage")
    }

    def asks(self, text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}]}

    def form(self, schema: object) -> dict[str, Any]:
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}

    def body(self, text: str, /, **fields: Any) -> dict[str, Any]:
        """Whoever is to find nothing in the cache is somebody else each time."""
        if "stop" in fields:
            stop = fields.pop("stop")
            fields["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        if fields.pop("cache_prompt", True) is False:
            fields["metadata"] = {"user_id": secrets.token_hex(8)}
        return super().body(text, **fields)

    def read(self, answer: dict[str, Any]) -> Seen:
        assert set(answer) == self.keys
        (block,) = answer["content"]
        return Seen(
            pieces=(block["text"],),
            reason=self._reason(answer),
            counts=_with_cached(answer["usage"]),
        )

    def joined(self, streamed: Streamed) -> Seen:
        start, ping, *blocks, delta, stop = events(streamed)
        types = [event["type"] for event in (start, ping, delta, stop)]
        assert types == ["message_start", "ping", "message_delta", "message_stop"]
        message = start["message"]
        assert set(message) == self.keys
        assert (message["type"], message["role"], message["content"]) == (
            *("message", "assistant"),
            [],
        )
        assert message["stop_reason"] is message["stop_sequence"] is None
        counts = _with_cached(delta["usage"])
        assert _with_cached(message["usage"]) == (counts[0], 0)
        return Seen(
            pieces=tuple(_pieces(blocks)), reason=self._reason(delta["delta"]), counts=counts
        )

    def is_end(self, lines: list[str]) -> bool:
        return lines == ["event: message_stop", 'data: {"type":"message_stop"}']

    def assert_refused(
        self, answer: Any, *, code: str | None = None, param: str | None = None
    ) -> None:
        """There is no place for the field but the message."""
        assert (set(answer), answer["type"]) == ({"type", "error"}, "error")
        assert set(answer["error"]) == {"type", "message"}
        assert answer["error"]["type"] == self.types.get(code or "", "invalid_request_error")
        assert answer["error"]["message"]

    def assert_failed(self, streamed: Streamed) -> None:
        """What was open is closed first."""
        *others, closing, last = events(streamed)
        assert closing["type"] == "content_block_stop"
        assert (set(last), last["error"]["type"]) == ({"type", "error"}, self.failed_type)
        assert {"message_delta", "message_stop"}.isdisjoint(event["type"] for event in others)

    def _reason(self, told: dict[str, Any]) -> str:
        assert (told["stop_sequence"] is None) == (told["stop_reason"] != "stop_sequence")
        return str(self.reasons[told["stop_reason"]])


def _pieces(told: list[Chunk]) -> list[str]:
    """Of the one block of text there is, or of none."""
    if not told:
        return []
    start, *deltas, stop = told
    assert [start["type"], stop["type"]] == ["content_block_start", "content_block_stop"]
    assert start["content_block"] == {"type": "text", "text": ""}
    assert {event["index"] for event in told} == {0}
    assert {event["type"] for event in deltas} == {"content_block_delta"}
    assert {event["delta"]["type"] for event in deltas} == {"text_delta"}
    return [event["delta"]["text"] for event in deltas]


def _with_cached(usage: Usage) -> tuple[int, int]:
    """What was found in the cache is not among the input tokens."""
    assert usage["cache_creation_input_tokens"] == 0
    return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]


class Responses(Route):
    path = "/v1/responses"
    param = "input"
    form_param = "text.format"
    around: ClassVar = [
        *("response.output_item.added", "response.content_part.added"),
        *("response.output_text.done", "response.content_part.done", "response.output_item.done"),
    ]
    """What stands before and behind the deltas of a text."""

    def form(self, schema: object) -> dict[str, Any]:
        return {"text": {"format": {"type": "json_schema", "name": "k", "schema": schema}}}

    def body(self, text: str, /, **fields: Any) -> dict[str, Any]:
        """Where nothing is to be kept of the prompt, nothing is of the answer."""
        if "max_tokens" in fields:
            fields["max_output_tokens"] = fields.pop("max_tokens")
        if fields.get("cache_prompt") is False:
            fields["store"] = False
        return super().body(text, **fields)

    def read(self, answer: dict[str, Any]) -> Seen:
        (item,) = answer["output"]
        (part,) = item["content"]
        assert part["text"] == answer["output_text"]
        assert item["status"] == answer["status"]
        return self._seen(answer, (part["text"],))

    def joined(self, streamed: Streamed) -> Seen:
        told = events(streamed)
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        created, in_progress, *items, last = told
        for first in (created, in_progress):
            assert set(first["response"]) == set(last["response"])
            assert first["response"]["status"] == "in_progress"
            assert first["response"]["output"] == []
        assert (created["type"], in_progress["type"]) == (
            "response.created",
            "response.in_progress",
        )
        assert last["type"] == f"response.{last['response']['status']}"
        pieces = _items(items, self.around)
        if pieces:
            assert "".join(pieces) == self.read(last["response"]).text
            ids = {event.get("item_id") or event["item"]["id"] for event in items}
            assert ids == {item["id"] for item in last["response"]["output"]}
        return self._seen(last["response"], pieces)

    def is_end(self, lines: list[str]) -> bool:
        return lines[0] in ("event: response.completed", "event: response.incomplete")

    def assert_failed(self, streamed: Streamed) -> None:
        *others, last = events(streamed)
        response = last["response"]
        assert (last["type"], response["status"]) == ("response.failed", "failed")
        assert set(response["error"]) == {"code", "message"}
        assert response["error"]["code"] == self.failed_type
        ends = {"response.completed", "response.incomplete", "response.failed"}
        assert ends.isdisjoint(event["type"] for event in others)

    def _seen(self, response: dict[str, Any], pieces: tuple[str, ...]) -> Seen:
        assert (response["object"], response["error"]) == ("response", None)
        is_cut = response["status"] == "incomplete"
        assert is_cut or response["status"] == "completed"
        reason = {"reason": "max_output_tokens"} if is_cut else None
        assert response["incomplete_details"] == reason
        usage = response["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        return Seen(
            pieces=pieces,
            reason="length" if is_cut else "stop",
            counts=(usage["input_tokens"], usage["output_tokens"]),
        )


def _items(told: list[Chunk], around: list[str]) -> tuple[str, ...]:
    """The pieces of the one message there is, or of none."""
    if not told:
        return ()
    others = [event["type"] for event in told if "delta" not in event]
    assert others == around
    assert {event["output_index"] for event in told} == {0}
    parts = [event for event in told if "item" not in event]
    assert {event["content_index"] for event in parts} == {0}
    return tuple(event["delta"] for event in told if "delta" in event)
