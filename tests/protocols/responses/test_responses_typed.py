"""Every golden read by the types of the official client, strictly: what it needs is there. And by
the list of keys that Open Responses wants in every response."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.types.responses import ResponseStreamEvent

from tests.protocols.responses.test_responses_golden import CASES
from tests.wire_schemas import asked, faults, told

EVENTS = {
    get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in get_args(get_args(ResponseStreamEvent)[0])
}
OURS = {"server_overloaded"}
"""Codes of a failure that OpenAI does not list."""
OPEN_RESPONSES = {
    "id": str,
    "object": str,
    "created_at": int,
    "completed_at": int | None,
    "status": str,
    "incomplete_details": dict | None,
    "model": str,
    "previous_response_id": str | None,
    "instructions": str | None,
    "output": list,
    "error": dict | None,
    "tools": list,
    "tool_choice": str | dict,
    "truncation": str,
    "parallel_tool_calls": bool,
    "text": dict,
    "top_p": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "top_logprobs": int,
    "temperature": float,
    "reasoning": dict | None,
    "user": str | None,
    "usage": dict | None,
    "max_output_tokens": int | None,
    "max_tool_calls": int | None,
    "store": bool,
    "background": bool,
    "service_tier": str,
    "metadata": dict,
    "safety_identifier": str | None,
    "prompt_cache_key": str | None,
}
ALSO = {"output_text": str, "conversation": str | None}
"""Of the contract (http-responses, 5)."""


def recorded(case: Path) -> list[dict[str, Any]]:
    """The events of a stream; an answer in one piece as the last of them."""
    if (case / "response.json").exists():
        body = json.loads((case / "response.json").read_text())
        return [
            {"type": f"response.{body['status']}", "sequence_number": 0, "response": body},
        ]
    lines = (case / "stream.sse").read_text().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_the_official_types_read_it(case: Path) -> None:
    for event in recorded(case):
        assert EVENTS[event["type"]].model_validate(official(event))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_every_key_is_always_there(case: Path) -> None:
    wanted = OPEN_RESPONSES | ALSO
    for event in recorded(case):
        if "response" in event:
            assert event["response"].keys() == wanted.keys()
            for key, kind in wanted.items():
                assert isinstance(event["response"][key], kind), key


def official(event: dict[str, Any]) -> dict[str, Any]:
    """With the words that are ours by contract taken for OpenAI's."""
    body = event.get("response")
    if body is None:
        return event
    error, named = body["error"], body["conversation"]
    if error is not None and error["code"] in OURS:
        error = error | {"code": "server_error"}
    conversation = None if named is None else {"id": named}
    return event | {"response": body | {"error": error, "conversation": conversation}}


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_it_is_as_described(case: Path) -> None:
    if (case / "response.json").exists():
        assert not faults(told("response"), json.loads((case / "response.json").read_text()))
        return
    for event in recorded(case):
        assert not faults(told("response_data"), event)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_what_was_asked_is_as_described(case: Path) -> None:
    assert not faults(asked("responses_create"), json.loads((case / "request.json").read_text()))
