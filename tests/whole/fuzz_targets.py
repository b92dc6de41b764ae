"""What is attacked: every method of every path in the route rows, each with a body that works."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mlxcel.http import wire
from tests.whole.cache_calls import ROWS

JSON = "application/json"
PARTS = {
    "<id_slot>": "0",
    "<conversation>": "fuzz",
    "<model:path>": "echo",
    "<response>": "resp_0",
}
_SAMPLING: dict[str, Any] = {
    "max_tokens": 3,
    "temperature": 0,
    "top_p": 0.9,
    "seed": 7,
    "stop": ["zzz"],
    "logit_bias": {"65": 1.5},
    "presence_penalty": 0.1,
    "n": 1,
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "looks",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
_CHAT: dict[str, Any] = {
    "model": "any",
    "messages": [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
    ],
    **_SAMPLING,
    "stream": False,
    "stream_options": {"include_usage": True},
    "logprobs": True,
    "top_logprobs": 2,
    "tools": [_TOOL],
    "tool_choice": "none",
    "response_format": {"type": "text"},
    "chat_template_kwargs": {"enable_thinking": False},
    "conversation": "fuzz",
}
BODIES: dict[str, Any] = {
    "openai.chat": _CHAT,
    "openai.completions": {
        "model": "any",
        "prompt": ["hello"],
        **_SAMPLING,
        "echo": True,
        "logprobs": 1,
        "stream": False,
    },
    "responses.create": {"model": "any", "input": "hello", "max_output_tokens": 3, "stream": False},
    "responses.compact": {"model": "any", "input": "hello", "max_output_tokens": 3},
    "responses.count": {"input": "hello"},
    "anthropic.messages": {
        "model": "any",
        "system": [{"type": "text", "text": "be short"}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "max_tokens": 3,
        "temperature": 0,
        "top_p": 0.9,
        "top_k": 5,
        "stop_sequences": ["x"],
        "stream": False,
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "none"},
        "thinking": {"type": "enabled", "budget_tokens": 2},
        "metadata": {"user_id": "fuzz"},
        "conversation": "fuzz",
    },
    "llama.completion": {
        "prompt": "hello",
        "n_predict": 3,
        "n_probs": 1,
        "samplers": ["top_k", "temperature"],
        "dry_sequence_breakers": ["x"],
        "logit_bias": [[65, 1.5]],
        "json_schema": None,
        "mirostat": 0,
        "id_slot": -1,
        "stream": False,
        "stop": [],
        "temperature": 0,
    },
    "llama.infill": {
        "input_prefix": "def f(",
        "input_suffix": "return 1",
        "input_extra": [{"filename": "a.py", "text": "x = 1"}],
        "prompt": "a",
        "n_predict": 2,
    },
    "settings.patch": {"op": "merge", "values": {"default_temperature": 0.5}, "atomic": False},
    "settings.revert": {"version": 1},
    "slots.act": {"filename": "fuzz.bin"},
    "lora.change": [{"id": 0, "scale": 0.5}],
    "tokenizer.tokenize": {"content": "hello", "add_special": True, "with_pieces": True},
    "tokenizer.detokenize": {"tokens": [104, 105]},
    "streams.lookup": {"conversation_ids": ["fuzz"]},
    "control.act": {"id": "chatcmpl-1", "action": "reasoning_end"},
    "conversations.save": {"conversation": "fuzz", "title": "a", "budget_mb": 1},
    "conversations.load": {"conversation": "fuzz"},
}
"""By codec, else by handler. A new codec needs a line here; what a new handler reads should have
one, else it is attacked with bodies of no field."""
QUERIES: dict[str, tuple[str, ...]] = {
    "slots.act": ("?action=erase", "?action=save", "?action=restore"),
    "streams.show": ("?conv_id=fuzz&from=0",),
    "streams.delete": ("?conv_id=fuzz",),
}
"""By handler: what makes it do something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One method on one path, with a query that works."""

    row: str
    method: str
    path: str
    query: str
    body: Any
    fields: tuple[str, ...]
    """All that its body may have, as far as the row tells."""
    dialect: str
    handler: str
    headers: tuple[tuple[str, str], ...]
    """Of every request: a key, where there is one."""

    @property
    def generates(self) -> bool:
        return self.handler == "generate"


def all_targets(key: str | None) -> list[Target]:
    headers = () if key is None else (("Authorization", f"Bearer {key}"),)
    return [
        Target(
            row=name,
            method=method,
            path=_filled(path),
            query=query,
            body=BODIES[row["codec"]] if "codec" in row else BODIES.get(row["handler"], {}),
            fields=_fields(row.get("body")),
            dialect=row["dialect"],
            handler=row["handler"],
            headers=headers,
        )
        for name, row in ROWS.items()
        for path in row["paths"]
        for method in row["methods"]
        for query in QUERIES.get(row["handler"], ("",))
    ]


def _fields(schema: str | None) -> tuple[str, ...]:
    return () if schema is None else tuple(wire.fields_of(schema).get("properties", ()))


def _filled(path: str) -> str:
    for part, value in PARTS.items():
        path = path.replace(part, value)
    return path


def head(
    target: Target,
    headers: Iterable[tuple[str, str | bytes]] = (),
    *,
    method: str | None = None,
    path: str | bytes | None = None,
    version: str = "HTTP/1.1",
) -> bytes:
    """The request line and headers, the empty line included. Text leaves as UTF-8."""
    address = _bytes(target.path + target.query if path is None else path)
    first = (method or target.method).encode() + b" " + address + b" " + version.encode()
    lines = [b"Host: fuzz", *(_line(*one) for one in (*target.headers, *headers))]
    return b"\r\n".join([first, *lines, b"", b""])


def with_body(target: Target, body: bytes, *headers: tuple[str, str | bytes], **how: Any) -> bytes:
    """A request whose framing is right, whatever it says."""
    typed = (("Content-Type", JSON), ("Content-Length", str(len(body))), *headers)
    return head(target, typed, **how) + body


def _line(name: str, value: str | bytes) -> bytes:
    return name.encode() + b": " + _bytes(value)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
