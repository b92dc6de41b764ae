"""Responses, as Codex asks for them: nothing is kept here, thoughts go back sealed and without
ids. And by id: the server keeps all, and the agent sends what is new."""

from tests.whole.agents.agent import FUNCTIONS, REMINDER, RESULTS, RULES, TASK, Json, schema

SENT_BACK = (
    "type",
    "role",
    "content",
    "summary",
    "encrypted_content",
    "call_id",
    "name",
    "arguments",
)


class ResponsesAgent:
    path = "/v1/responses"

    def __init__(self, *, stream: bool, is_kept: bool = False) -> None:
        self._stream = stream
        self._is_kept = is_kept

    def first(self) -> Json:
        said = (("developer", "Approvals are off."), ("user", REMINDER), ("user", TASK))
        body: Json = {
            "model": "gpt-5-codex",
            "instructions": RULES,
            "input": [
                {
                    "type": "message",
                    "role": role,
                    "content": [{"type": "input_text", "text": text}],
                }
                for role, text in said
            ],
            "tools": [
                {
                    "type": "function",
                    "name": name,
                    "description": about,
                    "strict": False,
                    "parameters": schema(name),
                }
                for name, (about, _) in FUNCTIONS.items()
            ],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "store": self._is_kept,
            "stream": self._stream,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "019a1e55-7f0c-7c52-9d4f-2f3f0d1f6a11",
        }
        return body

    def whole(self, events: list[Json]) -> Json:
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        return {"id": events[-1]["response"]["id"], "output": done}

    def then(self, body: Json, answer: Json, turn: int) -> Json:
        results = [
            {
                "type": "function_call_output",
                "call_id": item["call_id"],
                "output": RESULTS[item["name"]],
            }
            for item in answer["output"]
            if item["type"] == "function_call"
        ]
        if self._is_kept:
            return body | {"previous_response_id": answer["id"], "input": results}
        said = [_sent_back(item) for item in answer["output"]]
        return body | {"input": [*body["input"], *said, *results]}


def _sent_back(item: Json) -> Json:
    """Sealed thoughts are not sent in the clear as well."""
    sent = {key: item[key] for key in SENT_BACK if key in item}
    if "encrypted_content" in sent:
        sent["content"] = None
    return sent
