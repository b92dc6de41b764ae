"""Whether an answer is one that a client of the route may get."""

import json
from collections.abc import Callable
from typing import Any

from tests.whole.fuzz_attacks import Attack
from tests.whole.fuzz_reader import HttpAnswer

OPENAI = {"message", "type", "param", "code"}
LLAMA = {"message", "type", "code"}
EXPECTED = frozenset(
    {200, 204, 400, 401, 403, 404, 405, 409, 412, 413, 414, 415, 417, 422, 426, 431, 501, 503}
)
GENERAL = frozenset({401, 413})
"""In OpenAI's envelope on every route."""


OWN = {
    "health.show": ["health"],
    "refused.refuse": ["disabled"],
    "settings.patch": ["openai", "text"],
}
"""Handlers whose refusals are not in the envelope of their row alone."""


def verdict(attack: Attack, method: str, answer: HttpAnswer) -> str | None:
    """What is wrong with it; None: nothing. `method` is that of the request it answers."""
    status = answer.status
    if b"internal error" in answer.body or b"Traceback" in answer.body:
        return "an internal error"
    if status not in EXPECTED:
        return f"status {status}"
    if method == "HEAD" or status == 204:
        return None if not answer.body else "a body that may not be"
    if status >= 400:
        return _error(attack, answer)
    if method == "OPTIONS":
        return None if not answer.body else "a preflight with a body"
    return _success(answer)


def _success(answer: HttpAnswer) -> str | None:
    match answer.media_type:
        case "application/json":
            return _json(answer.body)[1]
        case "text/event-stream":
            return _frames(answer.body)
        case "text/plain":
            return None if answer.body.endswith(b"\n") else "a text without an end"
    return f"media type {answer.media_type!r}"


def _frames(body: bytes) -> str | None:
    """Whole frames: comments, `[DONE]` and JSON."""
    if body and not body.endswith(b"\n\n"):
        return "a stream that ends inside a frame"
    for line in body.split(b"\n"):
        data = line.removeprefix(b"data: ")
        if not line or line.startswith((b":", b"event: ")) or data == b"[DONE]":
            continue
        if data is line:
            return f"a line of no kind in a stream: {line[:80]!r}"
        if (wrong := _json(data)[1]) is not None:
            return wrong
    return None


def _error(attack: Attack, answer: HttpAnswer) -> str | None:
    if answer.media_type != "application/json":
        return f"an error as {answer.media_type!r}"
    body, wrong = _json(answer.body)
    if wrong is not None:
        return wrong
    due = _shapes(attack, answer.status)
    if any(SHAPES[name](body, answer.status) for name in due):
        return None
    return f"no error in the shape of {' or '.join(due)}"


def _shapes(attack: Attack, status: int) -> list[str]:
    target = attack.target
    if attack.is_plain and status not in GENERAL:
        return OWN.get(target.handler, [target.dialect])
    if attack.is_plain:
        return ["openai"]
    # Whether the route was found depends on the head.
    return sorted({"openai", target.dialect, *OWN.get(target.handler, ())})


def _openai(body: Any, status: int) -> bool:
    error = body.get("error")
    if not isinstance(error, dict) or set(error) != OPENAI or set(body) - {"error", "rejected"}:
        return False
    texts = (error["param"], error["code"])
    return _is_told(error) and all(text is None or isinstance(text, str) for text in texts)


def _llama(body: Any, status: int) -> bool:
    error = body.get("error")
    if not isinstance(error, dict) or set(error) != LLAMA or set(body) != {"error"}:
        return False
    return _is_told(error) and error["code"] == status


def _is_told(error: dict[str, Any]) -> bool:
    return all(isinstance(error[name], str) and error[name] for name in ("message", "type"))


def _kamiwaza(body: Any, status: int) -> bool:
    return set(body) == {"detail"} and isinstance(body["detail"], str) and bool(body["detail"])


def _text(body: Any, status: int) -> bool:
    """The settings' own, for what is no patch at all."""
    return set(body) == {"error"} and isinstance(body["error"], str)


def _disabled(body: Any, status: int) -> bool:
    error = body.get("error")
    return status == 403 and isinstance(error, dict) and error.get("type") == "feature_disabled"


def _health(body: Any, status: int) -> bool:
    """All slots are busy."""
    return status == 503 and isinstance(body.get("status"), str) and "batch" in body


def _anthropic(body: Any, status: int) -> bool:
    error = body.get("error") if isinstance(body, dict) else None
    is_typed = isinstance(error, dict) and body.get("type") == "error"
    return is_typed and all(isinstance(error.get(key), str) for key in ("type", "message"))


SHAPES: dict[str, Callable[[Any, int], bool]] = {
    "openai": _openai,
    "native": _openai,
    "llama": _llama,
    "responses": _openai,
    "anthropic": _anthropic,
    "kamiwaza": _kamiwaza,
    "text": _text,
    "disabled": _disabled,
    "health": _health,
}


def _json(data: bytes) -> tuple[Any, str | None]:
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except ValueError as error:
        return None, f"no JSON: {error}"
    return value, None if isinstance(value, dict | list) else "JSON, but no object"


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
