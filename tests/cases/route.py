"""What is to be said of a route so that a case can run on it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from tests.cases.asking import DONE, Streamed, assert_error_object, stream
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
    failed_type: ClassVar[str] = "server_error"
    """Of the error for an answer that failed."""

    def asks(self, text: str) -> dict[str, Any]:
        return {self.param: text}

    def form(self, schema: object) -> dict[str, Any]:
        """Fields that hold the answer to a schema."""
        return {self.form_param: json_schema(schema)}

    def body(self, text: str, /, **fields: Any) -> dict[str, Any]:
        return {"model": "any", "temperature": 0, **self.asks(text), **fields}

    def plain(self, program: Program, text: str, /, **fields: Any) -> Seen:
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

    def streamed(self, program: Program, text: str, /, **fields: Any) -> Seen:
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

    def is_end(self, lines: list[str]) -> bool:
        """Whether a frame is the last one of a success."""
        return lines == [f"data: {DONE}"]

    def assert_refused(
        self, answer: Any, *, code: str | None = None, param: str | None = None
    ) -> None:
        """In the envelope that the clients of the route know."""
        assert_error_object(answer, code=code, param=param)

    def assert_failed(self, streamed: Streamed) -> None:
        """A stream that ends in one error object, and tells of no success."""
        *chunks, last = streamed.chunks
        assert set(last) == {"error"}
        assert set(last["error"]) == {"message", "type", "param", "code"}
        assert DONE not in streamed.payloads
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        assert {choice["finish_reason"] for choice in choices} == {None}

    def said(self, choice: dict[str, Any]) -> str:
        """By a choice of the whole answer."""
        raise AssertionError(choice)

    def piece(self, choice: dict[str, Any]) -> str:
        """By a choice of one chunk."""
        raise AssertionError(choice)


def _counts(usage: dict[str, Any]) -> tuple[int, int]:
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"]
