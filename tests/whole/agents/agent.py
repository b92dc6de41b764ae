"""What the three agents have in common: a task, tools, and what these tell.

An agent asks, reads the answer, does what it was told to, and asks again with all that was said.
"""

import http.client
import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

Json = dict[str, Any]

RULES = "You are a coding agent. Read before you write; run the tests when you are done."
REMINDER = "<environment>cwd: /src, shell: zsh</environment>"
TASK = "The test of calc.py fails. Please mend it."
PATH = {"path": {"type": "string", "description": "Below the project."}}
FUNCTIONS: dict[str, tuple[str, Json]] = {
    "read_file": ("Reads a file.", PATH),
    "edit_file": (
        "Replaces a text.",
        {**PATH, "old": {"type": "string"}, "new": {"type": "string"}},
    ),
    "run_tests": ("Runs all tests.", {}),
}
RESULTS = {
    "read_file": "def add(a, b):\n    return a - b  # größer\n",
    "edit_file": "1 line changed",
    "run_tests": "1 passed in 0.01s",
}
TURNS = 3


def _call(name: str, **arguments: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


EDIT = {"path": "calc.py", "old": "a - b", "new": "a + b"}
SCRIPT = {
    "calc.py fails": "<think>First the file.</think>I will look at calc.py."
    + _call("read_file", path="calc.py"),
    "return a - b": "<think>It takes away — it should add.</think>"
    + _call("edit_file", **EDIT)
    + _call("run_tests"),
    "1 passed": "<think>Done.</think>Mended: `add` adds now ✓",
}
"""What the model says to a user, or to the result of a tool."""


class Agent(Protocol):
    path: str

    def first(self) -> Json:
        """The body of the first turn."""

    def whole(self, events: list[Json]) -> Json:
        """What an agent makes of a stream: as much of an answer as `then` needs."""

    def then(self, body: Json, answer: Json, turn: int) -> Json:
        """The body of the turn after, of which the tools have been called."""


def schema(name: str) -> Json:
    _, properties = FUNCTIONS[name]
    return {"type": "object", "properties": properties, "required": [*properties]}


def post(url: str, path: str, body: Mapping[str, Any]) -> bytes:
    """The body of the reply, as it came."""
    address = urlsplit(url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        sent = json.dumps(body).encode()
        connection.request("POST", path, sent, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        read = reply.read()
        assert reply.status == 200, read
        return read
    finally:
        connection.close()


def events(stream: bytes) -> list[Json]:
    lines = stream.decode().split("\n")
    data = (line.removeprefix("data: ") for line in lines if line.startswith("data: {"))
    return [json.loads(line) for line in data]
