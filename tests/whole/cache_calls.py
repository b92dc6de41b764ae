"""Requests to every generating route, and all that an answer says of the prompt cache: which route
rows there are is read from the configuration, so that one that is added is walked too."""

import json
import re
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.whole.program import Program

Body = dict[str, Any]
CHAT = "/v1/chat/completions"
ROOT = Path(__file__).parents[2]
ROWS: dict[str, dict[str, Any]] = {
    name: row
    for path in sorted((ROOT / "conf" / "routes" / "rows").glob("*.yaml"))
    for name, row in yaml.safe_load(path.read_text()).items()
}
NAMELESS = frozenset({"llama.completion", "llama.infill"})
"""By the interface nothing in a request of these names a session: all of them share one."""
GENERATING: list[tuple[str, str]] = [
    (row["codec"], path)
    for row in ROWS.values()
    if row["handler"] == "generate" and row["codec"] not in NAMELESS
    for path in row["paths"]
]
"""Codec and path of each route that can be told whose a request is."""
CHATS = ("openai.chat", "anthropic.messages")
TALKING = [(codec, path) for codec, path in GENERATING if codec in CHATS]
"""Those that know conversations."""
OTHERS: list[tuple[str, str, str]] = [
    (row["handler"], method, path)
    for row in ROWS.values()
    if row["handler"] != "generate"
    for path in row["paths"]
    for method in row["methods"]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One answer, whole, in either form."""

    headers: Mapping[str, str]
    body: str
    usage: Mapping[str, Any]
    timings: Mapping[str, Any]

    @property
    def header(self) -> str:
        return self.headers["x-cache-status"]

    @property
    def cache(self) -> Mapping[str, Any]:
        found = self.timings["cache"]
        assert isinstance(found, dict)
        return found

    @property
    def diverged(self) -> Mapping[str, Any]:
        found = self.cache["diverged"]
        assert isinstance(found, dict)
        return found

    @property
    def reused(self) -> int:
        """The same number wherever it is told."""
        if "cache_read_input_tokens" in self.usage:
            read = self.usage["cache_read_input_tokens"]
            assert isinstance(read, int)
            assert (read > 0) == self.header.startswith("hit")
            return read
        told = self.timings["cache_n"]
        assert told == self.cache["reused_tokens"]
        assert told == self.usage["prompt_tokens_details"]["cached_tokens"]
        assert isinstance(told, int)
        return told


def chat(text: str, system: str | None = None) -> Body:
    said = [] if system is None else [{"role": "system", "content": system}]
    messages = [*said, {"role": "user", "content": text}]
    # Of several tokens a stream makes as many frames as it has time for.
    return {"model": "any", "messages": messages, "max_tokens": 1, "temperature": 0}


def named(codec: str, session: Body) -> Body:
    """What names a session, in the words of the codec."""
    if codec != "anthropic.messages":
        return session
    session = session | session.get("extra_body", {})
    user = session.get("prompt_cache_key") or session.get("user")
    kept = {name: value for name, value in session.items() if name.startswith("conversation")}
    return kept | ({"metadata": {"user_id": user}} if user else {})


def text(prompt: str) -> Body:
    return {"model": "any", "prompt": prompt, "max_tokens": 1, "temperature": 0}


BODIES: dict[str, Callable[[str], Body]] = {
    "openai.chat": chat,
    "openai.completions": text,
    "anthropic.messages": chat,
}
"""What asks each codec about a text. A new codec needs a line here, and its sessions are walked, or
a word in `NAMELESS`."""


def ask(
    program: Program,
    body: Body,
    *,
    path: str = CHAT,
    stream: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Told:
    """Fails unless the header and the body say the same."""
    if stream:
        body = body | {"stream": True, "stream_options": {"include_usage": True}}
    sent = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(program.url + path, json.dumps(body).encode(), sent)
    with urllib.request.urlopen(request, timeout=60) as reply:
        text = reply.read().decode()
        told = _told({name.lower(): value for name, value in reply.headers.items()}, text, stream)
    if told.timings:
        said = _as_header(told.cache)
        assert told.header == said, (told.header, said)
    assert told.reused >= 0
    return told


def _told(headers: Mapping[str, str], text: str, stream: bool) -> Told:
    if not stream:
        whole = json.loads(text)
        timings = whole.get("timings", {})  # Messages have none
        return Told(headers=headers, body=text, usage=whole["usage"], timings=timings)
    data = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: {")]
    found: dict[str, Any] = {"timings": {}}
    for chunk in map(json.loads, data):
        assert "error" not in chunk, chunk
        found |= {key: chunk[key] for key in ("usage", "timings") if chunk.get(key) is not None}
    return Told(headers=headers, body=text, **found)


def _as_header(cache: Mapping[str, Any]) -> str:
    words = [cache["status"]]
    if cache["status"] == "hit":
        words += [f"reused={cache['reused_tokens']}", f"source={cache['source']}"]
    if cache["reason"] is not None:
        words.append(f"reason={cache['reason']}")
    if (diverged := cache["diverged"]) is not None:
        words += [f"differs={','.join(diverged['differs'])}"] if diverged["differs"] else []
        words.append(f"at={diverged['at']}")
    return "; ".join(words)


_CLOCK = re.compile(
    r'"(?:id|created|ts|\w+_ms|\w+_per_token_ms|\w+_per_second)":(?:"[^"]*"|[-\d.e+]+)'
)
_OF_ONE_ANSWER = {"date", "x-request-id", "content-length"}
"""The length counts digits of milliseconds."""


def shown(told: Told) -> tuple[dict[str, str], str]:
    """All of an answer but its own id and what a clock says."""
    kept = {name: value for name, value in told.headers.items() if name not in _OF_ONE_ANSWER}
    return kept, _CLOCK.sub("", told.body)


def reset(*programs: Program) -> None:
    for program in programs:
        status, body = program.post("/v1/cache/reset", {})
        assert (status, body["cleared"]) == (200, True)


def stats(program: Program) -> dict[str, Any]:
    status, body = program.get("/v1/cache/stats")
    assert status == 200
    assert isinstance(body, dict)
    return body
