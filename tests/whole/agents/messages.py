"""Messages, as Claude Code asks for them: a stamp that changes at the head of the system text,
marks of the cache, thinking on, blocks sent back as they came."""

import json
from typing import Any

from tests.whole.agents.agent import FUNCTIONS, REMINDER, RESULTS, RULES, TASK, Json, schema

EPHEMERAL = {"cache_control": {"type": "ephemeral"}}


class MessagesAgent:
    path = "/v1/messages?beta=true"

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream

    def first(self) -> Json:
        body: Json = {
            "model": "claude-sonnet-4-5-20250929",
            "max_tokens": 8192,
            "system": _system(1),
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": f"<system-reminder>{REMINDER}</system-reminder>"},
                        {"type": "text", "text": TASK, **EPHEMERAL},
                    ],
                }
            ],
            "tools": [
                {"name": name, "description": about, "input_schema": schema(name)}
                for name, (about, _) in FUNCTIONS.items()
            ],
            "metadata": {"user_id": "user_4d_account__session_1c"},
            "thinking": {"type": "enabled", "budget_tokens": 4096},
        }
        return body | ({"stream": True} if self._stream else {})

    def whole(self, events: list[Json]) -> Json:
        content: list[Json] = []
        pieces: list[str] = []
        for event in events:
            match event["type"]:
                case "content_block_start":
                    content.append(event["content_block"])
                    pieces = []
                case "content_block_delta":
                    _add(content[event["index"]], event["delta"], pieces)
        return {"content": content}

    def then(self, body: Json, answer: Json, turn: int) -> Json:
        results: list[Json] = [
            {
                "type": "tool_result",
                "tool_use_id": block["id"],
                "content": _told(RESULTS[block["name"]], is_plain=turn % 2 == 0),
            }
            for block in answer["content"]
            if block["type"] == "tool_use"
        ]
        results[-1] |= EPHEMERAL
        said = {"role": "assistant", "content": answer["content"]}
        messages = [*body["messages"], said, {"role": "user", "content": results}]
        return body | {"system": _system(turn), "messages": messages}


def _system(turn: int) -> list[Json]:
    stamp = (
        f"x-anthropic-billing-header: cc_version=2.1.37.{turn}fb; cc_entrypoint=cli; cch=a{turn}b;"
    )
    return [{"type": "text", "text": stamp}, {"type": "text", "text": RULES, **EPHEMERAL}]


def _told(text: str, *, is_plain: bool) -> Any:
    return text if is_plain else [{"type": "text", "text": text}]


def _add(block: Json, delta: Json, pieces: list[str]) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "input_json_delta":
            pieces.append(delta["partial_json"])
            block["input"] = json.loads("".join(pieces))
