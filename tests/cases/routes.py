"""The routes that say something, and how each is asked and read. A case that is about more than
the chat runs on all of them."""

import json
from typing import Any, ClassVar

from tests.cases.asking import CHAT, DONE, Streamed
from tests.cases.named_events import Messages, Responses
from tests.cases.route import USAGE, Route, Seen

__all__ = ["USAGE", "Route", "Seen"]


class Chat(Route):
    path = CHAT
    param = "messages"

    def asks(self, text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}]}

    def said(self, choice: dict[str, Any]) -> str:
        return str(choice["message"]["content"])

    def piece(self, choice: dict[str, Any]) -> str:
        return choice["delta"].get("content") or ""


class Text(Route):
    path = "/v1/completions"
    param = "prompt"

    def said(self, choice: dict[str, Any]) -> str:
        return str(choice["text"])

    piece = said


class Native(Route):
    """Of llama-server: no choices, another word for the reason, and no [DONE]."""

    path = "/completion"
    param = "prompt"
    form_param = "json_schema"
    long_type = "exceed_context_size_error"
    reasons: ClassVar = {"eos": "stop", "word": "stop", "limit": "length"}

    def form(self, schema: object) -> dict[str, Any]:
        return {self.form_param: schema}

    def read(self, answer: dict[str, Any]) -> Seen:
        return Seen(
            pieces=(answer["content"],),
            reason=self.reasons[answer["stop_type"]],
            counts=(answer["tokens_evaluated"], answer["tokens_predicted"]),
        )

    def joined(self, streamed: Streamed) -> Seen:
        *frames, last = streamed.chunks
        assert [frame["stop"] for frame in streamed.chunks] == [False] * len(frames) + [True]
        assert DONE not in streamed.payloads
        assert last["content"] == ""
        return Seen(
            pieces=tuple(frame["content"] for frame in frames),
            reason=self.reasons[last["stop_type"]],
            counts=(last["tokens_evaluated"], last["tokens_predicted"]),
        )

    def is_end(self, lines: list[str]) -> bool:
        (line,) = lines
        return json.loads(line.removeprefix("data: "))["stop"] is True

    def assert_failed(self, streamed: Streamed) -> None:
        *frames, last = streamed.chunks
        assert set(last) == {"error"}
        assert (last["error"]["code"], last["error"]["type"]) == (500, "server_error")
        assert [frame["stop"] for frame in frames] == [False] * len(frames)
        assert DONE not in streamed.payloads


class NativeAlias(Native):
    path = "/completions"


class Infill(Native):
    """Only where the model has markers for it."""

    path = "/infill"
    param = "input_prefix"

    def asks(self, text: str) -> dict[str, Any]:
        return {"input_prefix": text, "input_suffix": ""}


CHATS = Chat()
TEXTS = Text()
NATIVE = Native()
INFILL = Infill()
MESSAGES = Messages()
RESPONSES = Responses()
STEERED_ROUTES: list[Route] = [CHATS, TEXTS, NATIVE, RESPONSES]
"""Those that take a seed, and the wish that nothing be kept."""
ROUTES: list[Route] = [*STEERED_ROUTES, MESSAGES]
"""Those that any model serves."""
MARKED_ROUTES: list[Route] = [*ROUTES, NativeAlias(), INFILL]


def name_of(route: object) -> str | None:
    """The `ids` of a parameter that is a route."""
    return route.path if isinstance(route, Route) else None
