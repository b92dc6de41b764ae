"""POST /v1/responses/compact: the turns so far, summed up in one item that clients send back in
their place."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxcel.core.answer import Answer
from mlxcel.core.errors import GenerationFailed
from mlxcel.core.request import GenerationRequest, Lane, Message
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import Head, ReadRules, StreamEncoder
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.responses import create
from mlxcel.protocols.responses.asked import Asked
from mlxcel.protocols.responses.body import usage_body
from mlxcel.protocols.responses.items import ID_BYTES, Find, Item, NewHex, unknown
from mlxcel.protocols.responses.sealed import sealed

FIELDS = (
    *("model", "input", "previous_response_id", "max_output_tokens"),
    *("prompt_cache_key", "user", "chat_template_kwargs"),
)
"""Those it shares with a request for a response; others mean nothing here."""
ASKED = (
    "Sum up the conversation so far for whoever goes on with it: what was asked, what was found "
    "and decided, every name, number and path that matters, and what is left to do. Answer with "
    "the summary alone."
)
BEFORE = "What was said before, in short:\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRead:
    whole: create.ResponsesRead
    """The turns as a request that somebody would answer."""
    request: GenerationRequest
    """The same, which sums them up."""
    stream: bool = False
    ping_s: float | None = None
    is_counted: bool = True
    new_hex: NewHex = secrets.token_hex

    @property
    def requests(self) -> Sequence[GenerationRequest]:
        return (self.request,)

    def encoder(self, head: Head) -> StreamEncoder:
        """A summary is never streamed."""
        return self.whole.encoder(head)

    def answer(self, head: Head, answer: Answer) -> dict[str, Any]:
        """Raises GenerationFailed for a summary that says nothing."""
        text = answer.choices[0].text.strip()
        if not text:
            raise GenerationFailed("the summary is empty; raise max_output_tokens")
        return {
            "id": head.id,
            "object": "response.compaction",
            "created_at": head.created,
            "output": [
                {
                    "id": f"cmp_{self.new_hex(ID_BYTES)}",
                    "type": "compaction",
                    "encrypted_content": sealed(BEFORE + text),
                }
            ],
            "usage": usage_body(answer.usage),
        }


def read_first(body: Mapping[str, Any], rules: ReadRules) -> Asked:
    """As for a response."""
    return create.read_first(_shared(body), rules)


def read(
    body: Mapping[str, Any],
    *,
    request_id: str,
    settings: Settings,
    received_s: float,
    rules: ReadRules,
    lane: Lane = Lane.NORMAL,
    history: Sequence[Item] = (),
    find: Find = unknown,
) -> CompactRead:
    """Raises what `create.read` raises; a history without a word is refused by it."""
    guidance = Reader(body).string("instructions")
    whole = create.read(
        _shared(body),
        request_id=request_id,
        settings=settings,
        received_s=received_s,
        rules=rules,
        lane=lane,
        history=history,
        find=find,
    )
    wish = f"{ASKED}\n{guidance}" if guidance else ASKED
    messages = _with_wish(whole.request.chat.messages, wish)
    request = replace(whole.request, prompt=replace(whole.request.chat, messages=messages))
    return CompactRead(whole=whole, request=request)


def _shared(body: Mapping[str, Any]) -> Mapping[str, Any]:
    shared = {name: body[name] for name in FIELDS if name in body}
    if shared.get("input") is None and shared.get("previous_response_id") is not None:
        shared["input"] = []
    return shared | {"temperature": 0, "thinking_budget_tokens": 0}


def _with_wish(messages: Sequence[Message], wish: str) -> tuple[Message, ...]:
    """At the end, in a turn of the user: templates refuse two of them in a row."""
    last = messages[-1]
    if last.role != "user":
        return (*messages, Message(role="user", text=wish))
    return (*messages[:-1], replace(last, text=f"{last.text}\n\n{wish}"))
