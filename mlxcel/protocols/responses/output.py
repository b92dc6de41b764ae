"""The output items of a response while they are said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlxcel.protocols.responses.parts import text_part
from mlxcel.protocols.responses.sealed import sealed

IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"


@dataclass(slots=True, kw_only=True)
class Thought:
    """The encoder of the stream owns it, as the next two."""

    id: str
    is_sealed: bool = False
    """The client wants to send it back without reading it."""
    is_summed: bool = False
    """The client shows summaries; they are the thoughts themselves."""
    status: str = IN_PROGRESS
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def summary(self) -> dict[str, Any]:
        return {"type": "summary_text", "text": self.text}

    def body(self) -> dict[str, Any]:
        """One that has just begun has its part, though empty: no event adds it, and npm's openai
        (6.49, 7.59) ends a stream whose delta is for a part that it has not seen."""
        text = self.text
        return {
            "id": self.id,
            "type": "reasoning",
            "summary": [self.summary()] if self.is_summed and text else [],
            "content": [{"type": "reasoning_text", "text": text}],
            "status": self.status,
        } | ({"encrypted_content": sealed(text)} if self.is_sealed and text else {})


@dataclass(slots=True, kw_only=True)
class Said:
    id: str
    status: str = IN_PROGRESS
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def part(self) -> dict[str, Any]:
        return text_part("output_text", self.text)

    def body(self) -> dict[str, Any]:
        """One that has just begun has no part yet."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": self.status,
            "content": [self.part()] if self.texts or self.status != IN_PROGRESS else [],
        }


@dataclass(slots=True, kw_only=True)
class Called:
    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: str = IN_PROGRESS

    def body(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.arguments,
            "status": self.status,
        }


Output = Thought | Said | Called


def bodies(output: Sequence[Output]) -> list[Mapping[str, Any]]:
    return [item.body() for item in output]


def output_text(output: Sequence[Output]) -> str:
    return "".join(item.text for item in output if isinstance(item, Said))
