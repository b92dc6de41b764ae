"""Chat completions, as opencode and the AI SDK ask for them: thoughts go back as
`reasoning_content`."""

from tests.whole.agents.agent import FUNCTIONS, REMINDER, RESULTS, RULES, TASK, Json, schema


class ChatAgent:
    path = "/v1/chat/completions"

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream

    def first(self) -> Json:
        functions = [
            {"name": name, "description": about, "parameters": schema(name)}
            for name, (about, _) in FUNCTIONS.items()
        ]
        asked = [{"type": "text", "text": text} for text in (REMINDER, TASK)]
        body: Json = {
            "model": "echo",
            "max_tokens": 8192,
            "temperature": 0,
            "messages": [
                {"role": "system", "content": RULES},
                {"role": "user", "content": asked},
            ],
            "tools": [{"type": "function", "function": function} for function in functions],
            "tool_choice": "auto",
        }
        more = {"stream": True, "stream_options": {"include_usage": True}}
        return body | (more if self._stream else {})

    def whole(self, events: list[Json]) -> Json:
        message: Json = {"role": "assistant", "content": ""}
        calls: dict[int, Json] = {}
        for delta in (choice["delta"] for event in events for choice in event["choices"]):
            for key in ("content", "reasoning_content"):
                if delta.get(key):
                    message[key] = message.get(key, "") + delta[key]
            for piece in delta.get("tool_calls", ()):
                call = calls.setdefault(piece["index"], {"function": {"arguments": ""}})
                call |= {key: piece[key] for key in ("id", "type") if key in piece}
                given = piece["function"]
                call["function"] |= {"name": given["name"]} if "name" in given else {}
                call["function"]["arguments"] += given.get("arguments", "")
        if calls:
            message["tool_calls"] = [*calls.values()]
        return {"choices": [{"message": message}]}

    def then(self, body: Json, answer: Json, turn: int) -> Json:
        message = answer["choices"][0]["message"]
        results = [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": RESULTS[call["function"]["name"]],
            }
            for call in message["tool_calls"]
        ]
        return body | {"messages": [*body["messages"], message, *results]}
