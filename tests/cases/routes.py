"""The routes that say something, and how each is asked and read. A case that is about more than
the chat runs on all of them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from tests.cases.asking import CHAT, DONE, Streamed, stream
from tests.whole.program import Program
from tests.whole.schemas import json_schema

USAGE = {"stream_options": {"include_usage": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An answer, whichever its form and its route."""

    pieces: tuple[str, ...]
    reason: str
    counts: tuple[int, int]
    """Tokens of the prompt and of the answer."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Route:
    """One of them; those below say how it differs."""

    path: ClassVar[str]
    param: ClassVar[str]
    """The field that holds the prompt."""
    form_param: ClassVar[str] = "response_format"
    long_type: ClassVar[str] = "invalid_request_error"
    """Of the error for a prompt that is too long."""

    def asks(self, text: str) -> dict[str, Any]:
        return {self.param: text}

    def form(self, schema: object) -> dict[str, Any]:
        """Fields that hold the answer to a schema."""
        return {self.form_param: json_schema(schema)}

    def body(self, text: str, **fields: Any) -> dict[str, Any]:
        return {"model": "any", "temperature": 0, **self.asks(text), **fields}

    def plain(self, program: Program, text: str, **fields: Any) -> Seen:
        status, answer = program.post(self.path, self.body(text, **fields))
        assert status == 200, answer
        return self.read(answer)

    def read(self, answer: dict[str, Any]) -> Seen:
        (choice,) = answer["choices"]
        return Seen(
            pieces=(self.said(choice),),
            reason=choice["finish_reason"],
            counts=_counts(answer["usage"]),
        )

    def streamed(self, program: Program, text: str, **fields: Any) -> Seen:
        asked = self.body(text, **(USAGE | fields))
        return self.joined(stream(program, asked, path=self.path))

    def joined(self, streamed: Streamed) -> Seen:
        assert streamed.payloads[-1] == DONE
        *chunks, last = streamed.chunks
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        (reason,) = streamed.reasons
        return Seen(
            pieces=tuple(self.piece(choice) for choice in choices),
            reason=reason,
            counts=_counts(last["usage"]),
        )

    def said(self, choice: dict[str, Any]) -> str:
        """By a choice of the whole answer."""
        raise AssertionError(choice)

    def piece(self, choice: dict[str, Any]) -> str:
        """By a choice of one chunk."""
        raise AssertionError(choice)


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


class NativeAlias(Native):
    path = "/completions"


class Infill(Native):
    """Only where the model has markers for it."""

    path = "/infill"
    param = "input_prefix"

    def asks(self, text: str) -> dict[str, Any]:
        return {"input_prefix": text, "input_suffix": ""}


def _counts(usage: dict[str, Any]) -> tuple[int, int]:
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"]


CHATS = Chat()
TEXTS = Text()
NATIVE = Native()
INFILL = Infill()
ROUTES: list[Route] = [CHATS, TEXTS, NATIVE]
"""Those that any model serves."""
MARKED_ROUTES: list[Route] = [*ROUTES, NativeAlias(), INFILL]


def name_of(route: object) -> str | None:
    """The `ids` of a parameter that is a route."""
    return route.path if isinstance(route, Route) else None
